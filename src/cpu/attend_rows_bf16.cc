#include "cpu/attend_rows_bf16.h"

#include <algorithm>
#include <cstring>

#include "kvscale/error.h"
#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attend_rows_bf16.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "cpu/attend_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC push_options
#pragma GCC target("avx512bf16")
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int kRowsPerBlock = 6;  // 6 x 4 accumulators of the 32 registers

// ---------------------------------------------------------------------------------------------------------------------
// Products of BF16 pairs, accumulated in registers in the order of the pairs.

HWY_INLINE __m512bh LoadPairs(const void* p) { return (__m512bh)_mm512_loadu_si512(p); }

HWY_INLINE __m512bh BroadcastPair(const uint16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/// sum[r][v] += the pairs [begin, end) of row r of `a` times those of column vector v of `b`.
template <int kRows, int kVecs>
HWY_INLINE void AddProducts(int64_t begin, int64_t end, const uint16_t* a, int64_t lda,
                            const uint32_t* b, int64_t ldb, __m512 (&sum)[kRows][kVecs]) {
  for (int64_t i = begin; i < end; ++i) {
    __m512bh row_of_b[kVecs];
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) row_of_b[v] = LoadPairs(b + i * ldb + v * kLanes);
    KV_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = BroadcastPair(a + r * lda + 2 * i);
      KV_UNROLL
      for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, row_of_b[v]);
    }
  }
}

/// scores[kRows][64] = q . keys
template <int kRows>
void ScoreBlock(int64_t dim, const uint16_t* q, const uint32_t* keys, float* scores) {
  __m512 sum[kRows][4];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  AddProducts<kRows, 4>(0, dim / 2, q, dim, keys, kTile, sum);
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < 4; ++v) _mm512_store_ps(scores + r * kTile + v * kLanes, sum[r][v]);
  }
}

/// acc = acc * correction + p . values, of kVecs column vectors and the pairs of keys [begin, end)
template <int kRows, int kVecs>
HWY_INLINE void ValueBlock(int64_t begin, int64_t end, const uint16_t* p, const uint32_t* values,
                           int64_t value_stride, const float* corrections, float* acc,
                           int64_t acc_stride) {
  __m512 sum[kRows][kVecs];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = _mm512_mul_ps(_mm512_load_ps(acc + r * acc_stride + v * kLanes),
                                _mm512_set1_ps(corrections[r]));
    }
  }
  AddProducts<kRows, kVecs>(begin, end, p, kTile, values, value_stride, sum);
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      _mm512_store_ps(acc + r * acc_stride + v * kLanes, sum[r][v]);
    }
  }
}

/// Scores, probabilities and weighted values of kRows rows from `row` on, while they are in the
/// first-level cache.
template <int kRows>
void AttendBlock(const AttendRows& rows, int64_t row, int64_t first, int64_t end, const Tile& t) {
  alignas(64) float scores[kRows * kTile];
  alignas(64) uint16_t p[kRows * kTile];
  float corrections[kRows];
  const int64_t dim = rows.cache->page.head_dim;
  ScoreBlock<kRows>(dim, rows.q + row * dim, t.keys, scores);
  for (int r = 0; r < kRows; ++r) {
    corrections[r] = SoftmaxRow(rows, row + r, VisibleKeys(rows, row + r, first, end), t,
                                scores + r * kTile, p + r * kTile);
  }
  // Rows ascend in position: no row of the block sees a key outside these pairs.
  const int64_t begin = VisibleKeys(rows, row, first, end).begin / 2;
  const int64_t stop = VisibleKeys(rows, row + kRows - 1, first, end).last / 2 + 1;
  float* acc = t.acc + row * t.acc_stride;
  int64_t at = 0;
  for (; at + 4 * kLanes <= t.acc_stride; at += 4 * kLanes) {
    ValueBlock<kRows, 4>(begin, stop, p, t.values + at, t.value_stride, corrections, acc + at,
                         t.acc_stride);
  }
  for (; at < t.acc_stride; at += kLanes) {
    ValueBlock<kRows, 1>(begin, stop, p, t.values + at, t.value_stride, corrections, acc + at,
                         t.acc_stride);
  }
}

void AttendTile(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const RowRange range = rows_that_see(rows, first, end);
  if (range.begin == range.end) return;
  LoadTile(rows, first, end, t);
  int64_t row = range.begin;
  for (; row + kRowsPerBlock <= range.end; row += kRowsPerBlock) {
    AttendBlock<kRowsPerBlock>(rows, row, first, end, t);
  }
  switch (range.end - row) {
    case 5:
      return AttendBlock<5>(rows, row, first, end, t);
    case 4:
      return AttendBlock<4>(rows, row, first, end, t);
    case 3:
      return AttendBlock<3>(rows, row, first, end, t);
    case 2:
      return AttendBlock<2>(rows, row, first, end, t);
    case 1:
      return AttendBlock<1>(rows, row, first, end, t);
    default:
      return;
  }
}

void AttendBf16(const AttendRows& rows, AttendScratch& scratch) {
  const Tile t = MakeTile(rows, 2, scratch);
  for (int64_t first = rows.first_key; first < rows.end_key; first += kTile)
    AttendTile(rows, first, std::min(first + kTile, rows.end_key), t);
  WriteRows(rows, t);
}

#undef KV_UNROLL

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
#pragma GCC pop_options
#endif  // HWY_AVX3_DL
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

bool bf16_dot_pays() {
#if HWY_ARCH_X86
  return avx512_bf16_allowed() && __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

void attend_rows_bf16(const AttendRows& rows, AttendScratch& scratch) {
#if HWY_TARGETS & HWY_AVX3_DL
  N_AVX3_DL::AttendBf16(rows, scratch);
#else
  (void)rows, (void)scratch;
  throw UnsupportedError("attention: this build has no code for AVX512-BF16");
#endif
}

}  // namespace kv::cpu
#endif  // HWY_ONCE
