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

  /// Rows that a product of `rows` rows is computed with: the multiple of a row count that was
  /// found to give the same bits as all others. matmul() is fastest when y has room for them.
  int64_t padded_rows(int64_t rows) const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// y = x W^T.
///
/// x  [rows, in_features] bf16, contiguous
/// y  [at least rows, out_features] f32, contiguous; rows from x's rows on are scratch
///
/// BF16 products, F32 sums (AMX or AVX512-BF16 where the CPU has it; on a CPU without AVX-512 the
/// same products in F32). A row's bits do not depend on the number of rows: the library's kernels
/// may split the sum differently for few rows (it does with AMX), so only row counts that agree bit
/// for bit with the largest one are used, which pack() finds out per shape. 2 * rows * in * out
/// FLOPs. Throws ShapeError.
KernelUsed matmul(const PackedMatrix& weights, const TensorView& x, const TensorView& y);

/// The same in double over plain weights [out_features, in_features] bf16, written to be read.
void matmul_ref(const TensorView& weights, const TensorView& x, const TensorView& y);

}  // namespace kv
