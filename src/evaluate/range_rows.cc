#include "evaluate/range_rows.h"

#include <algorithm>
#include <cmath>

#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "evaluate/range_rows.cc"
#include "hwy/foreach_target.h"
// highway.h and what builds on it must follow foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kv::range_rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;

// Sums in flight cover the latency of a multiply-add and share the loads of b; AVX-512 has
// registers for twice as many.
constexpr int kTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

/// kRows rows by two vectors of c.
template <int kRows>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                              float* HWY_RESTRICT c, int64_t ldc, int64_t inner) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V left[kRows], right[kRows];
// At -O2 the loops over rows stay loops unless told otherwise, and the sums then live in memory.
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) left[r] = right[r] = hn::Zero(d);
  for (int64_t i = 0; i < inner; ++i) {
    const V b0 = hn::LoadU(d, b + i * kPanel), b1 = hn::LoadU(d, b + i * kPanel + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(d, a[r * lda + i]);
      left[r] = hn::MulAdd(x, b0, left[r]);
      right[r] = hn::MulAdd(x, b1, right[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    hn::StoreU(left[r], d, c + r * ldc);
    hn::StoreU(right[r], d, c + r * ldc + lanes);
  }
}

void multiply_all(const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                  int64_t panel_stride, float* HWY_RESTRICT c, int64_t ldc, int64_t rows,
                  int64_t inner, int64_t columns) {
  const auto step = 2 * static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t column = 0; column < columns; column += step) {
    const float* panel = b + column / kPanel * panel_stride + column % kPanel;
    int64_t row = 0;
    for (; row + kTileRows <= rows; row += kTileRows) {
      multiply_tile<kTileRows>(a + row * lda, lda, panel, c + row * ldc + column, ldc, inner);
    }
    for (; row < rows; ++row) {
      multiply_tile<1>(a + row * lda, lda, panel, c + row * ldc + column, ldc, inner);
    }
  }
}

void softmax_row(float* HWY_RESTRICT row, int64_t n, int64_t width) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float largest = *std::max_element(row, row + n);
  // Entries past n become exp(-inf) = 0, so the loop needs no tail.
  std::fill(row + n, row + width, -INFINITY);
  V sum = hn::Zero(d);
  for (int64_t i = 0; i < width; i += lanes) {
    const V shifted = hn::Sub(hn::LoadU(d, row + i), hn::Set(d, largest));
    // Highway's Exp takes no infinities; exp(-1000) is 0 in F32 too.
    const V e = hn::Exp(d, hn::Max(shifted, hn::Set(d, -1000.0f)));
    hn::StoreU(e, d, row + i);
    sum = hn::Add(sum, e);
  }
  const V inverse = hn::Set(d, 1.0f / hn::GetLane(hn::SumOfLanes(d, sum)));
  for (int64_t i = 0; i < width; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), inverse), d, row + i);
  }
}

double variance_of_row(const float* HWY_RESTRICT p, const float* HWY_RESTRICT e, int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, p + i), hn::LoadU(d, e + i), sum);
  }
  float mean = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) mean += p[i] * e[i];

  const V means = hn::Set(d, mean);
  V squares = hn::Zero(d);
  for (i = 0; i + lanes <= n; i += lanes) {
    const V deviation = hn::Sub(hn::LoadU(d, e + i), means);
    squares = hn::MulAdd(hn::Mul(hn::LoadU(d, p + i), deviation), deviation, squares);
  }
  double variance = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; i < n; ++i) variance += p[i] * (e[i] - mean) * (e[i] - mean);
  return variance;
}

void add_rows(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT out,
              int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = a[i] + b[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::range_rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::range_rows {

HWY_EXPORT(multiply_all);
HWY_EXPORT(softmax_row);
HWY_EXPORT(variance_of_row);
HWY_EXPORT(add_rows);

void multiply(const float* a, int64_t lda, const float* b, int64_t panel_stride, float* c,
              int64_t ldc, int64_t rows, int64_t inner, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(multiply_all)(a, lda, b, panel_stride, c, ldc, rows, inner, columns);
}

void softmax(float* row, int64_t n, int64_t width) {
  HWY_DYNAMIC_DISPATCH(softmax_row)(row, n, width);
}

double weighted_variance(const float* p, const float* e, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(variance_of_row)(p, e, n);
}

void add(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_rows)(a, b, out, n);
}

}  // namespace kv::range_rows
#endif  // HWY_ONCE
