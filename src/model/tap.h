#pragma once

#include <cstdint>
#include <functional>

namespace kv {

/// What one layer's attention block saw and gave for consecutive tokens of one sequence, as BF16
/// storage would keep it. Pointers live during the call only.
struct AttentionTap {
  int64_t layer = 0;
  int64_t sequence = 0;        // the caller's number of the sequence
  int64_t first_position = 0;  // of the first of these tokens
  int64_t num_tokens = 0;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0, hidden_size = 0;
  float softmax_scale = 0;
  int64_t window = 0;           // keys that a query sees, its own included; 0 = all
  float soft_cap = 0;           // scores become cap * tanh(score / cap); 0 = none
  const uint16_t* q = nullptr;  // [num_tokens, num_q_heads, head_dim] bf16, after norm and RoPE
  const uint16_t* k =
      nullptr;  // [num_tokens, num_kv_heads, head_dim] bf16, what is given to store_kv
  const uint16_t* v = nullptr;  // as k
  // Not 0: k is a latent with the part of the key that turns behind it (MLA), q is what meets it,
  // and v is k, of which V is the first so many values, read through K's scale.
  int64_t latent_values = 0;
  // [num_tokens] what k was multiplied by for storage, and what is read is divided by; null: 1.
  const float* key_factors = nullptr;
  const float* residual =
      nullptr;  // [num_tokens, hidden_size], what the block's output is added to
  const float* block_out = nullptr;  // [num_tokens, hidden_size], what the block adds
  const float* next_norm = nullptr;  // [hidden_size], weights of the norm that reads the sum

  int64_t value_dim() const { return latent_values > 0 ? latent_values : head_dim; }

  /// What the block would add for other attention outputs (projection and norm after it): in [rows,
  /// num_q_heads * value_dim()] f32, out [rows, hidden_size] f32; rounds its input to BF16 as the
  /// model does.
  std::function<void(const float* in, int64_t rows, float* out)> project;
};

/// Sees every layer of every sequence of a forward pass, in order of layers. The sequence's earlier
/// tokens were given to earlier calls with the same layer.
class AttentionObserver {
 public:
  virtual ~AttentionObserver() = default;
  virtual void on_attention(const AttentionTap& tap) = 0;
};

}  // namespace kv
