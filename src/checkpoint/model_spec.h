#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/rope_spec.h"

namespace kv {

/// What a checkpoint declares about its model; every number has passed validate().
struct ModelSpec {
  std::string architecture;  // "llama" or "qwen2"
  std::string name;          // for people; may be empty
  int num_layers = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;     // rows of the embedding, at least the number of tokens
  int max_positions = 0;  // tokens of context that the model was made for
  double rms_norm_eps = 0.0;
  RopeSpec rope;
  bool tied_embeddings = false;  // true: the embedding is the output head, lm_head is not read
  bool has_qkv_bias = false;
  bool has_o_bias = false;
  std::optional<int32_t> bos_id;
  bool add_bos = false;  // as declared beside the weights; Tokenizer::prefix_ids() is what counts
  std::vector<int32_t> eos_ids;  // every id that ends a generation, without repeats

  int q_per_kv() const { return num_q_heads / num_kv_heads; }
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

/// The value as an int. Throws FormatError, naming `file`, `field`, the range and the value, when
/// it lies outside.
int expect_within(const IntRange& range, int64_t value, std::string_view file,
                  std::string_view field);

/// Throws FormatError, naming `file` and the field, expected and found, unless all sizes are
/// positive and within bounds, query heads are a multiple of KV heads, head_dim is even, and
/// token ids lie in the vocabulary.
void validate(const ModelSpec& spec, std::string_view file);

}  // namespace kv
