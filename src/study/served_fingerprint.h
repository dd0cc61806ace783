#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "endpoint/completion.h"
#include "engine/engine.h"
#include "study/fingerprint_evidence.h"
#include "study/fingerprint_hypotheses.h"
#include "study/progress.h"

namespace kv {

/// Texts of at most `piece_tokens` tokens out of longer ones, at most `budget` tokens in all. Each
/// begins with `prefix` (what the tokenizer puts before every text). Pieces of fewer than 32 tokens
/// are left out.
std::vector<std::vector<int32_t>> fingerprint_pieces(std::span<const std::vector<int32_t>> texts,
                                                     std::span<const int32_t> prefix,
                                                     int64_t piece_tokens, int64_t budget);

/// Logprobs of tokens 1, 2, ... of a text on kvscale's own engine: of the control first, then under
/// each of the hypotheses that `chosen` names.
std::vector<std::vector<double>> emulate(const std::shared_ptr<const Model>& model,
                                         std::span<const int32_t> tokens,
                                         std::span<const Hypothesis> hypotheses,
                                         std::span<const size_t> chosen, const BatchPlan& plan);

struct FingerprintOptions {
  bool is_full = false;  // to the last text, and no hypothesis is given up
  // Gets each text as it was compared, with the hypotheses that were emulated.
  std::function<void(std::span<const int32_t> tokens, const FingerprintPiece&,
                     std::span<const size_t> hypotheses)>
      seen;
};

/// Asks both servers for the logprobs of one text after the other (the control twice for the first
/// one), emulates the same under each hypothesis that is still in question, and ends as soon as the
/// answer is safe or the texts are used up. Throws UnsupportedError for a model that stores
/// latents, and the endpoint's errors.
Fingerprint take_fingerprint(CompletionClient& control, CompletionClient& candidate,
                             const std::shared_ptr<const Model>& model,
                             std::span<const std::vector<int32_t>> pieces,
                             std::span<const Hypothesis> hypotheses,
                             const FingerprintOptions& options, Progress& progress);

}  // namespace kv
