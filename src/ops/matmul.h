#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ops/kernel.h"
#include "tensor/view.h"

namespace kv {

/// Weights of a linear layer, [out_features, in_features] BF16, packed once for the machine. Copies
/// share the memory.
class PackedMatrix {
 public:
  /// Writes rows [first, first + count) of the weights to `out`, row-major; may be called from
  /// several threads.
  using RowReader = std::function<void(int64_t first, int64_t count, uint16_t* out)>;

  PackedMatrix() = default;
  static PackedMatrix pack(int64_t out_features, int64_t in_features, const RowReader& rows);

  int64_t out_features() const;
  int64_t in_features() const;
  int64_t packed_bytes() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// y = x W^T.
///
/// x  [rows, in_features] bf16, contiguous
/// y  [rows, out_features] f32, contiguous
///
/// BF16 products, F32 sums: by tiles (AMX), pairs (AVX512-BF16 where it is fast) or multiply-adds
/// in F32. The terms of an element are added in the order of in_features, so a row's bits do not
/// depend on the number of rows or threads. 2 * rows * in * out FLOPs. Throws ShapeError.
KernelUsed matmul(const PackedMatrix& weights, const TensorView& x, const TensorView& y);

/// The same in double over plain weights [out_features, in_features] bf16, written to be read.
void matmul_ref(const TensorView& weights, const TensorView& x, const TensorView& y);

}  // namespace kv
