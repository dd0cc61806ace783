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

HWY_INLINE __m512bh BroadcastPair(const uint16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return (__m512bh)_mm512_set1_epi32(pair);
}

/// Where columns of pairs come from: a tile that was widened, which many rows share.
struct WidenedPairs {
  static constexpr bool kHasColumnsOf64 = false;
  const uint32_t* data;
  int64_t stride;

  WidenedPairs from_column(int64_t column) const { return {data + column, stride}; }
  template <int kVecs>
  HWY_INLINE void Load(int64_t i, __m512i (&pairs)[kVecs]) const {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      pairs[v] = _mm512_loadu_si512(data + i * stride + v * kLanes);
    }
  }
};

/// Or the pages: widened into registers, for few rows. 64 columns at a time.
template <bool kIsFp8>
struct StoredPairs {
  static constexpr bool kHasColumnsOf64 = true;
  StoredRows from;
  int64_t num_rows;
  int64_t cleared;                // the pair whose first counts as 0; -1: none
  const uint8_t* next = nullptr;  // the next tile's first row, to be fetched meanwhile

  StoredPairs from_column(int64_t column) const {
    constexpr int64_t kBytes = kIsFp8 ? 1 : 2;
    return {{from.data + column * kBytes, from.stride},
            num_rows,
            cleared,
            next == nullptr ? nullptr : next + column * kBytes};
  }
  HWY_INLINE void Load(int64_t i, __m512i (&pairs)[4]) const {
    const uint8_t* a = from.data + 2 * i * from.stride;
    const uint8_t* b = a + from.stride;
    if (kIsFp8 && next != nullptr) {  // BF16 pages gain nothing by it
      const char* ahead = reinterpret_cast<const char*>(next) + 2 * i * from.stride;
      _mm_prefetch(ahead, _MM_HINT_T0);
      _mm_prefetch(ahead + from.stride, _MM_HINT_T0);
    }
    // A second row that is not there reads the first, masked.
    const bool has_b = 2 * i + 1 < num_rows;
    const __mmask64 present = has_b ? ~uint64_t{0} : 0;
    if (!has_b) b = a;
    if constexpr (kIsFp8) {
      PairCodes(_mm512_loadu_si512(a), _mm512_maskz_loadu_epi8(present, b), pairs);
    } else {
      const auto present_values = static_cast<__mmask32>(present);
      KV_UNROLL
      for (int half = 0; half < 2; ++half) {
        PairValues(_mm512_loadu_si512(a + 64 * half),
                   _mm512_maskz_loadu_epi16(present_values, b + 64 * half), pairs[2 * half],
                   pairs[2 * half + 1]);
      }
    }
    if (i == cleared) {
      KV_UNROLL
      for (int v = 0; v < 4; ++v) {
        pairs[v] = _mm512_and_si512(pairs[v], _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
      }
    }
  }
};

/// sum[r][v] += the pairs [begin, end) of row r of `a` times those of column vector v of `b`.
template <int kRows, int kVecs, class Pairs>
HWY_INLINE void AddProducts(int64_t begin, int64_t end, const uint16_t* a, int64_t lda,
                            const Pairs& b, __m512 (&sum)[kRows][kVecs]) {
  for (int64_t i = begin; i < end; ++i) {
    __m512i row_of_b[kVecs];
    b.Load(i, row_of_b);
    KV_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = BroadcastPair(a + r * lda + 2 * i);
      KV_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, (__m512bh)row_of_b[v]);
      }
    }
  }
}

/// scores[kRows][64] = q . keys
template <int kRows, class Pairs>
HWY_INLINE void ScoreBlock(int64_t dim, const uint16_t* q, const Pairs& keys, float* scores) {
  __m512 sum[kRows][4];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  AddProducts<kRows, 4>(0, dim / 2, q, dim, keys, sum);
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < 4; ++v) _mm512_store_ps(scores + r * kTile + v * kLanes, sum[r][v]);
  }
}

/// acc = acc * correction + p . values, of kVecs column vectors and the pairs of keys [begin, end)
template <int kRows, int kVecs, class Pairs>
HWY_INLINE void ValueBlock(int64_t begin, int64_t end, const uint16_t* p, const Pairs& values,
                           const float* corrections, float* acc, int64_t acc_stride) {
  __m512 sum[kRows][kVecs];
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = _mm512_mul_ps(_mm512_load_ps(acc + r * acc_stride + v * kLanes),
                                _mm512_set1_ps(corrections[r]));
    }
  }
  AddProducts<kRows, kVecs>(begin, end, p, kTile, values, sum);
  KV_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KV_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      _mm512_store_ps(acc + r * acc_stride + v * kLanes, sum[r][v]);
    }
  }
}

/// Scores, probabilities and weighted values of kRows rows from `row` on, while they are in the
/// first-level cache. `keys()` and `values()` give the tile's pairs when they are wanted.
template <int kRows, class Keys, class Values>
void AttendBlock(const AttendRows& rows, int64_t row, int64_t first, int64_t end, const Tile& t,
                 const Keys& keys, const Values& values) {
  alignas(64) float scores[kRows * kTile];
  alignas(64) uint16_t p[kRows * kTile];
  float corrections[kRows];
  const int64_t dim = rows.cache->page.head_dim;
  ScoreBlock<kRows>(dim, rows.q + row * dim, keys(), scores);
  for (int r = 0; r < kRows; ++r) {
    corrections[r] = SoftmaxRow(rows, row + r, VisibleKeys(rows, row + r, first, end), t,
                                scores + r * kTile, p + r * kTile);
  }
  // Rows ascend in position: no row of the block sees a key outside these pairs.
  const int64_t begin = VisibleKeys(rows, row, first, end).begin / 2;
  const int64_t stop = VisibleKeys(rows, row + kRows - 1, first, end).last / 2 + 1;
  float* acc = t.acc + row * t.acc_stride;
  const auto pairs = values();
  int64_t at = 0;
  for (; at + 4 * kLanes <= t.acc_stride; at += 4 * kLanes) {
    ValueBlock<kRows, 4>(begin, stop, p, pairs.from_column(at), corrections, acc + at,
                         t.acc_stride);
  }
  if constexpr (!decltype(pairs)::kHasColumnsOf64) {
    for (; at < t.acc_stride; at += kLanes) {
      ValueBlock<kRows, 1>(begin, stop, p, pairs.from_column(at), corrections, acc + at,
                           t.acc_stride);
    }
  }
}

/// The rows of `range`, some at a time.
template <class Keys, class Values>
void AttendRange(const AttendRows& rows, RowRange range, int64_t first, int64_t end, const Tile& t,
                 const Keys& keys, const Values& values) {
  int64_t row = range.begin;
  for (; row + kRowsPerBlock <= range.end; row += kRowsPerBlock) {
    AttendBlock<kRowsPerBlock>(rows, row, first, end, t, keys, values);
  }
  switch (range.end - row) {
    case 5:
      return AttendBlock<5>(rows, row, first, end, t, keys, values);
    case 4:
      return AttendBlock<4>(rows, row, first, end, t, keys, values);
    case 3:
      return AttendBlock<3>(rows, row, first, end, t, keys, values);
    case 2:
      return AttendBlock<2>(rows, row, first, end, t, keys, values);
    case 1:
      return AttendBlock<1>(rows, row, first, end, t, keys, values);
    default:
      return;
  }
}

/// A decode step: no other row shares the tile, so its pairs go from the pages into the products.
template <bool kKeysAreFp8, bool kValuesAreFp8>
void AttendFromPages(const AttendRows& rows, RowRange range, int64_t first, int64_t end,
                     const Tile& t) {
  LoadTileScales(rows, first, end, t);
  const int64_t unseen = unseen_keys(rows, first, end);
  const PageLayout& page = rows.cache->page;
  const auto next = [&](Side side, int64_t stride_in_place) -> const uint8_t* {
    if (end >= rows.end_key || stride_in_place != value_bytes(page.side(side).format))
      return nullptr;
    return rows.cache->block(rows.blocks[end / page.block_size]) +
           page.side(side).byte(rows.kv_head, end % page.block_size, 0);
  };
  // Both may be copies in the same place, so the values are asked for when the keys are done with.
  const auto keys = [&] {
    return StoredPairs<kKeysAreFp8>{stored_keys(rows, first, end, t.copy), page.head_dim, -1,
                                    next(Side::kK, page.side(Side::kK).slot_stride)};
  };
  const auto values = [&] {
    return StoredPairs<kValuesAreFp8>{stored_values(rows, first, end, t.copy), end - first,
                                      unseen % 2 != 0 ? unseen / 2 : -1,
                                      next(Side::kV, page.side(Side::kV).dim_stride)};
  };
  AttendRange(rows, range, first, end, t, keys, values);
}

void AttendTile(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const RowRange range = rows_that_see(rows, first, end);
  if (range.begin == range.end) return;
  const PageLayout& page = rows.cache->page;
  const bool is_one_block = range.end - range.begin <= kRowsPerBlock;
  if (is_one_block && page.head_dim % kTile == 0) {
    const bool keys_are_fp8 = is_fp8(page.side(Side::kK).format);
    const bool values_are_fp8 = is_fp8(page.side(Side::kV).format);
    if (keys_are_fp8 && values_are_fp8) {
      return AttendFromPages<true, true>(rows, range, first, end, t);
    }
    if (keys_are_fp8) return AttendFromPages<true, false>(rows, range, first, end, t);
    if (values_are_fp8) return AttendFromPages<false, true>(rows, range, first, end, t);
    return AttendFromPages<false, false>(rows, range, first, end, t);
  }
  LoadTile(rows, first, end, t);
  AttendRange(
      rows, range, first, end, t,
      [&] {
        return WidenedPairs{t.keys, kTile};
      },
      [&] {
        return WidenedPairs{t.values, t.value_stride};
      });
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
