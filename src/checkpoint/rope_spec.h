#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kv {

/// How the rotation frequencies were stretched for longer contexts, by Hugging Face's names.
/// kDynamic stretches only what lies beyond max_position_embeddings, where nothing is run: up to
/// there it is kDefault (so in transformers; vLLM stretches every position).
enum class RopeType : uint8_t { kDefault, kLinear, kLlama3, kYarn, kDynamic };

/// "default", "linear", "llama3", "yarn", "dynamic"
std::string_view name(RopeType type);

/// Rotary position embedding of a model, pairs half-split: component i turns with i + head_dim / 2.
struct RopeSpec {
  double theta = 10000.0;
  RopeType type = RopeType::kDefault;
  double factor = 1.0;                           // all but default
  double low_freq_factor = 1.0;                  // llama3
  double high_freq_factor = 4.0;                 // llama3
  double original_max_positions = 0.0;           // llama3, yarn: context of the pretraining
  double beta_fast = 32.0;                       // yarn
  double beta_slow = 1.0;                        // yarn
  bool truncate = true;                          // yarn: whole-numbered bounds of the ramp
  std::optional<double> given_attention_factor;  // yarn
  std::optional<double> mscale;                  // yarn
  std::optional<double> mscale_all_dim;          // yarn
  std::vector<float> freq_divisors;              // GGUF rope_freqs, [head_dim / 2] or empty
};

/// Radians per position of each pair, [head_dim / 2], in double. Applies freq_divisors last.
std::vector<double> inv_freq(const RopeSpec& rope, int head_dim);

/// What cos and sin, so both Q and the cached K, are multiplied by. 1 for every type but yarn.
double attention_factor(const RopeSpec& rope);

/// What MLA's scores are multiplied by beside that: (0.1 mscale_all_dim ln(factor) + 1)^2 for yarn
/// with mscale_all_dim, else 1.
double latent_score_factor(const RopeSpec& rope);

}  // namespace kv
