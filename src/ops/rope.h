#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/view.h"

namespace kv {

/// cos and sin of every position, F32 from double, times the attention factor.
class RopeTable {
 public:
  /// inv_freq  [head_dim / 2] radians per position
  RopeTable(std::span<const double> inv_freq, double attention_factor, int64_t max_positions);

  int64_t half() const { return half_; }
  int64_t max_positions() const { return max_positions_; }
  const float* cos(int64_t position) const { return cos_.data() + position * half_; }
  const float* sin(int64_t position) const { return sin_.data() + position * half_; }

 private:
  int64_t half_, max_positions_;
  std::vector<float> cos_, sin_;
};

/// Rotates q or k: out = bf16(rotate(x + bias, position)), pairs half-split (i, i + head_dim / 2).
///
/// x          [tokens, heads, head_dim] f32, rows may be strided
/// bias       [heads * head_dim] f32, or empty
/// positions  [tokens], below table.max_positions()
/// out        [tokens, heads, head_dim] bf16
///
/// Throws ShapeError, ValueError.
void rope(const TensorView& x, std::span<const float> bias, std::span<const int32_t> positions,
          const RopeTable& table, const TensorView& out);

/// The same in double, cos and sin of the table.
void rope_ref(const TensorView& x, std::span<const float> bias, std::span<const int32_t> positions,
              const RopeTable& table, const TensorView& out);

}  // namespace kv
