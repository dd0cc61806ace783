#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace kv::engine_test {

/// Logits of all tokens of one request, [tokens, vocab_size].
using Logits = std::vector<float>;

/// models/tiny, loaded once.
std::shared_ptr<const Model> tiny_model();

/// `count` token ids by a seed, no special ones.
std::vector<int32_t> some_tokens(uint64_t seed, int64_t count);

/// amax / 448 over the tokens' keys and values, per layer and side, and per head where asked for.
ScaleTable calibrate(const std::shared_ptr<const Model>& model, std::span<const int32_t> tokens,
                     bool is_per_head);

/// calibrate() of models/tiny on tokens of its own.
const ScaleTable& tiny_scales(bool is_per_head);

/// The scales that an arm needs, if it needs any.
std::optional<ScaleTable> scales_for(const ArmSpec& spec);

/// Adds the arm of models/tiny that `text` spells, with its scales.
int add_arm(Engine& engine, const std::string& text, int64_t capacity_tokens);

/// What is to be fed to one sequence.
struct Feed {
  Sequence* sequence;
  std::span<const int32_t> tokens;
};

/// Runs all requests in one call; logits of every token.
std::vector<Logits> run(Engine& engine, const std::vector<Feed>& feeds);
Logits run(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens);

/// Logits of the tokens as the only sequence of the only arm of an engine.
Logits run_alone(const std::string& arm, std::span<const int32_t> tokens, BatchPlan plan = {});

/// Logits of the same tokens under several arms, all in one call of one engine.
std::vector<Logits> run_together(const std::vector<std::string>& arms,
                                 std::span<const int32_t> tokens, BatchPlan plan = {});

/// "" when all bits are equal, else how many values differ and where the first one is.
std::string difference(std::span<const float> a, std::span<const float> b);

/// Root mean square of a - b.
double rms_distance(std::span<const float> a, std::span<const float> b);

}  // namespace kv::engine_test
