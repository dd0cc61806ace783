#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/rope_spec.h"

namespace kv {

/// What the gate of the feed-forward layer goes through.
enum class Activation : uint8_t { kSilu, kGeluTanh };

/// Attention over one latent vector per token (MLA): what is cached is [latent after its norm |
/// part that RoPE turned], one for all query heads. Keys and values of a head are projections of
/// the latent.
struct LatentSpec {
  int q_rank = 0;  // queries go through a latent of their own; 0 = they do not
  int kv_rank = 0;
  int nope_dim = 0;   // values of a head's query and key that do not turn
  int rope_dim = 0;   // those that do; the key's are shared by all heads
  int value_dim = 0;  // of a head
};

/// What a checkpoint declares about its model; every number has passed validate(). All that sets
/// one architecture's forward pass apart from another's is a number or a flag here.
struct ModelSpec {
  std::string architecture;  // model_type of Hugging Face, see family.h; also for GGUF files
  std::string name;          // for people; may be empty
  int num_layers = 0;
  int hidden_size = 0;
  int intermediate_size = 0;  // of each expert where there are experts
  int num_q_heads = 0;
  int num_kv_heads = 0;  // of what is cached: 1 where that is a latent
  int head_dim = 0;      // likewise: kv_rank + rope_dim
  std::optional<LatentSpec> latent;
  int vocab_size = 0;     // rows of the embedding, at least the number of tokens
  int max_positions = 0;  // tokens of context that the model was made for
  double rms_norm_eps = 0.0;
  RopeSpec rope;
  std::optional<RopeSpec> window_rope;  // of the layers with a window, where it is another
  std::vector<int>
      windows;  // [num_layers] keys that a query sees, its own included; 0 = all; or {}
  double softmax_scale = 0.0;       // what scores are multiplied by; 0 = head_dim^-0.5
  double attention_soft_cap = 0.0;  // scores become cap * tanh(score / cap); 0 = none
  double logit_soft_cap = 0.0;      // likewise the logits
  double embedding_scale = 1.0;     // what a token's embedding is multiplied by
  double norm_offset = 0.0;         // what is added to stored weights of norms
  Activation activation = Activation::kSilu;
  bool has_qk_norm = false;     // RMS norm of each head of Q and K before RoPE
  bool has_post_norms = false;  // RMS norm of what attention and feed-forward add to the residual
  int num_experts = 0;          // 0 = dense
  int experts_per_token = 0;
  bool renormalizes_experts = false;  // weights of the chosen experts sum to 1
  double experts_scale = 1.0;         // what the weights of the chosen experts are multiplied by
  int expert_groups = 0;              // experts are chosen from `groups_per_token` of so many; 0 =
  int groups_per_token = 0;           // from all
  int dense_layers = 0;               // the first layers, which have no experts
  int dense_intermediate_size = 0;    // theirs
  int shared_intermediate_size = 0;   // of a network beside the experts, for every token; 0 = none
  bool tied_embeddings = false;       // true: the embedding is the output head, lm_head is not read
  bool has_qkv_bias = false;
  bool has_o_bias = false;
  std::optional<int32_t> bos_id;
  bool add_bos = false;  // as declared beside the weights; Tokenizer::prefix_ids() is what counts
  std::vector<int32_t> eos_ids;  // every id that ends a generation, without repeats

  bool has_experts(int64_t layer) const { return num_experts > 0 && layer >= dense_layers; }
  int rope_dim() const { return latent ? latent->rope_dim : head_dim; }
  int q_per_kv() const { return num_q_heads / num_kv_heads; }
  int window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  bool turns_with_window_rope(int64_t layer) const {
    return window_rope.has_value() && window(layer) > 0;
  }
  double score_scale() const;
};

/// What a size may be, bounds included. Larger ones are no model but a broken file.
struct IntRange {
  int64_t least;
  int64_t most;
};
inline constexpr IntRange kNumLayersRange{1, 1024};
inline constexpr IntRange kSizeRange{1, 1 << 20};  // hidden_size, intermediate_size
inline constexpr IntRange kHeadsRange{1, 4096};
inline constexpr IntRange kHeadDimRange{2, 1024};
inline constexpr IntRange kVocabRange{1, 1 << 24};
inline constexpr IntRange kPositionsRange{1, 1 << 30};
inline constexpr IntRange kTokenRange{0, (1 << 24) - 1};
inline constexpr IntRange kExpertsRange{0, 4096};
inline constexpr IntRange kWindowRange{1, 1 << 30};

/// The value as an int. Throws FormatError, naming `file`, `field`, the range and the value, when
/// it lies outside.
int expect_within(const IntRange& range, int64_t value, std::string_view file,
                  std::string_view field);

/// What tells models apart that agree in all that Llama and Qwen2 have: the fields from window_rope
/// to renormalizes_experts but norm_offset, which belongs to the file's layout; empty where all
/// have their defaults.
std::string other_parts_text(const ModelSpec& spec);

/// Throws FormatError, naming `file` and the field, expected and found, unless all sizes are
/// positive and within bounds, query heads are a multiple of KV heads, head_dim is even, and
/// token ids lie in the vocabulary.
void validate(const ModelSpec& spec, std::string_view file);

}  // namespace kv
