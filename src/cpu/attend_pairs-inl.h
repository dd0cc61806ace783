// Keys, values and softmax of the attention kernels that multiply pairs of BF16 (vdpbf16ps, tiles):
// include after hwy/foreach_target.h, within the part that is compiled with AVX512-BF16 for
// HWY_AVX3_DL.

#if defined(KV_CPU_ATTEND_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CPU_ATTEND_PAIRS_INL_H_
#undef KV_CPU_ATTEND_PAIRS_INL_H_
#else
#define KV_CPU_ATTEND_PAIRS_INL_H_
#endif

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/exp2-inl.h"
#include "cpu/key_tile.h"
#include "cpu/round_weight-inl.h"
#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
// Highway 1.0 has no target with AVX512-BF16; this adds it to what AVX3_DL brings.
#pragma GCC push_options
#pragma GCC target("avx512bf16")
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using kv::HWY_NAMESPACE::E4m3Bytes;
using DF = hn::CappedTag<float, 16>;
constexpr int64_t kTile = kKeysPerTile;
constexpr int64_t kLanes = 16;

// GCC leaves these loops rolled at -O2, and the accumulators in memory with them.
#define KV_UNROLL _Pragma("GCC unroll 8")

// ---------------------------------------------------------------------------------------------------------------------
// Two rows of stored values become one row of pairs: out[i] = {a[i], b[i]} as two BF16.

/// For the pairs of 64 codes a and b, what each look-up takes from {a, b}: the look-ups' halves are
/// interleaved within lanes of 16 bytes, so pairs 4L to 4L + 3 of each 16 stand in lane L.
struct PairPlaces {
  alignas(64) uint8_t of[2][64];
};
constexpr PairPlaces MakePairPlaces() {
  PairPlaces places{};
  for (size_t i = 0; i < 64; ++i) {
    const size_t lane = i / 16, in_lane = i % 16;
    for (size_t half = 0; half < 2; ++half) {
      const size_t pair = 32 * half + 16 * (in_lane / 8) + 4 * lane + in_lane % 8 / 2;
      places.of[half][i] = static_cast<uint8_t>(pair + 64 * (i % 2));
    }
  }
  return places;
}
inline constexpr PairPlaces kPairPlaces = MakePairPlaces();

/// 64 pairs of codes: two shuffles to pair them, two look-ups each for both halves, four to bring
/// the bytes of each BF16 together.
HWY_INLINE void PairCodes(__m512i a, __m512i b, __m512i (&pairs)[4]) {
  KV_UNROLL
  for (int half = 0; half < 2; ++half) {
    const __m512i places = _mm512_load_si512(kPairPlaces.of[half]);
    const E4m3Bytes bytes(_mm512_permutex2var_epi8(a, places, b));
    pairs[2 * half] = _mm512_unpacklo_epi8(bytes.lower, bytes.upper);
    pairs[2 * half + 1] = _mm512_unpackhi_epi8(bytes.lower, bytes.upper);
  }
}
HWY_INLINE void PairCodes(__m512i a, __m512i b, uint32_t* out) {
  __m512i pairs[4];
  PairCodes(a, b, pairs);
  KV_UNROLL
  for (int v = 0; v < 4; ++v) _mm512_storeu_si512(out + v * kLanes, pairs[v]);
}

HWY_INLINE void PairE4m3(const uint8_t* a, const uint8_t* b, int64_t n, uint32_t* out) {
  int64_t i = 0;
  if (b != nullptr) {
    for (; i + 64 <= n; i += 64) {
      PairCodes(_mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i), out + i);
    }
  }
  for (; i < n; i += 64) {
    const __mmask64 present = n - i >= 64 ? ~uint64_t{0} : (uint64_t{1} << (n - i)) - 1;
    PairCodes(_mm512_maskz_loadu_epi8(present, a + i),
              _mm512_maskz_loadu_epi8(b == nullptr ? 0 : present, b + i), out + i);
  }
}

/// 32 pairs of BF16.
HWY_INLINE void PairValues(__m512i a, __m512i b, __m512i& first_half, __m512i& second_half) {
  alignas(64) static constexpr uint16_t kFirstHalf[32] = {
      0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kFirstHalf);
  const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
  first_half = _mm512_permutex2var_epi16(a, first, b);
  second_half = _mm512_permutex2var_epi16(a, second, b);
}

HWY_INLINE void PairBf16(const uint8_t* a, const uint8_t* b, int64_t n, uint32_t* out) {
  for (int64_t i = 0; i < n; i += 32) {
    const __mmask32 present = n - i >= 32 ? ~uint32_t{0} : (uint32_t{1} << (n - i)) - 1;
    __m512i first, second;
    PairValues(_mm512_maskz_loadu_epi16(present, a + 2 * i),
               _mm512_maskz_loadu_epi16(b == nullptr ? 0 : present, b + 2 * i), first, second);
    _mm512_storeu_si512(out + i, first);
    _mm512_storeu_si512(out + i + kLanes, second);
  }
}

/// Pairs of rows 2i and 2i + 1 for every i; a row beyond the last is 0. `out` rows are `stride`
/// pairs apart, a multiple of 64, and 0 beyond n.
template <bool kIsFp8>
HWY_INLINE void PairAll(StoredRows from, int64_t num_rows, int64_t n, int64_t stride,
                        uint32_t* out) {
  for (int64_t row = 0; row < num_rows; row += 2) {
    const uint8_t* a = from.data + row * from.stride;
    const uint8_t* b = row + 1 < num_rows ? a + from.stride : nullptr;
    uint32_t* pairs = out + row / 2 * stride;
    if constexpr (kIsFp8) {
      PairE4m3(a, b, n, pairs);
    } else {
      PairBf16(a, b, n, pairs);
    }
  }
}

/// {a, b} -> {0, b}: pairs of keys whose first nobody sees. Pairs before it are not multiplied
/// with.
void ClearFirsts(uint32_t* pairs, int64_t n) {
  for (int64_t i = 0; i < n; ++i) pairs[i] &= 0xffff0000u;
}

void PairRows(Format format, StoredRows from, int64_t num_rows, int64_t n, int64_t stride,
              uint32_t* out) {
  is_fp8(format) ? PairAll<true>(from, num_rows, n, stride, out)
                 : PairAll<false>(from, num_rows, n, stride, out);
}

// ---------------------------------------------------------------------------------------------------------------------
// One tile of keys.

struct Tile {
  const uint16_t* q;  // [num_rows][padded_dim]
  int64_t padded_dim;
  uint32_t* keys;    // [padded_dim / 2][64] pairs along head_dim
  uint32_t* values;  // [32][value_stride] pairs along the keys
  int64_t value_stride;
  float* acc;  // [num_rows][acc_stride]
  int64_t acc_stride;
  float* sums;          // [num_rows][16], added up at the end
  float* key_scales;    // [64]
  float* value_scales;  // [64]
  uint8_t* copy;
};

/// The keys of a tile that a row sees, relative to the tile: [begin, last].
struct Visible {
  int64_t begin, last;
};
HWY_INLINE Visible VisibleKeys(const AttendRows& rows, int64_t row, int64_t first, int64_t end) {
  const int64_t position = rows.positions[row];
  const int64_t begin = rows.window > 0 ? position - rows.window + 1 - first : 0;
  return {std::max<int64_t>(begin, 0), std::min(end - 1, position) - first};
}

/// cap * tanh(x / cap) as cap - 2 cap / (e^(2 x / cap) + 1): within 2^-22 of the cap.
HWY_INLINE __m512 SoftCap(__m512 x, float cap) {
  const DF d;
  constexpr float kTwoLog2E = 2.885390082f;
  // The exponential of what is not positive, by symmetry.
  const __m512 size = _mm512_abs_ps(x);
  const auto y = hn::Vec<DF>{_mm512_mul_ps(size, _mm512_set1_ps(-kTwoLog2E / cap))};
  const __m512 e = Exp2(d, y).raw;
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 tanh = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  constexpr int kBitsOfSecondWhereThirdElseFirst = 0xd8;
  const __m512i signed_tanh = _mm512_ternarylogic_epi32(
      _mm512_castps_si512(tanh), _mm512_castps_si512(x), sign, kBitsOfSecondWhereThirdElseFirst);
  return _mm512_mul_ps(_mm512_castsi512_ps(signed_tanh), _mm512_set1_ps(cap));
}

/// Scores [64] of one row become p [64], its probabilities times the inline V scales in BF16.
/// Updates the row's largest score and sum; gives what its accumulator has to be multiplied by.
float SoftmaxRow(const AttendRows& rows, int64_t row, Visible visible, const Tile& t,
                 const float* scores, uint16_t* p) {
  const DF d;
  constexpr float kLog2E = 1.442695041f;
  __m512 s[4];
  KV_UNROLL
  for (int v = 0; v < 4; ++v) {
    s[v] = _mm512_mul_ps(_mm512_load_ps(scores + v * kLanes),
                         _mm512_load_ps(t.key_scales + v * kLanes));
  }
  if (rows.soft_cap > 0) {
    KV_UNROLL
    for (int v = 0; v < 4; ++v) {
      s[v] = _mm512_mul_ps(SoftCap(s[v], rows.soft_cap), _mm512_set1_ps(kLog2E));
    }
  }
  if (visible.begin > 0 || visible.last < kTile - 1) {
    const uint64_t seen = (~uint64_t{0} >> (63 - visible.last)) & (~uint64_t{0} << visible.begin);
    const __m512 hidden = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    KV_UNROLL
    for (int v = 0; v < 4; ++v) {
      s[v] = _mm512_mask_mov_ps(hidden, static_cast<__mmask16>(seen >> (v * kLanes)), s[v]);
    }
  }
  float* sum_at = t.sums + row * kLanes;
  __m512 sum = _mm512_load_ps(sum_at);
  __m512 shift = _mm512_set1_ps(rows.largest[row]);
  float correction = 1;
  const __m512 largest = _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3]));
  // Rare after the first tiles, so the reduction is kept out of the way.
  if (_mm512_cmp_ps_mask(largest, shift, _CMP_GT_OQ) != 0) {
    rows.largest[row] = _mm512_reduce_max_ps(largest);
    const __m512 now = _mm512_set1_ps(rows.largest[row]);
    const __m512 factor = Exp2(d, hn::Vec<DF>{_mm512_sub_ps(shift, now)}).raw;
    sum = _mm512_mul_ps(sum, factor);
    correction = _mm512_cvtss_f32(factor);
    shift = now;
  }
  KV_UNROLL
  for (int v = 0; v < 4; ++v) s[v] = Exp2(d, hn::Vec<DF>{_mm512_sub_ps(s[v], shift)}).raw;
  sum = _mm512_add_ps(sum, _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
  _mm512_store_ps(sum_at, sum);
  if (rows.fp8_weights) {
    KV_UNROLL
    for (int v = 0; v < 4; ++v) s[v] = RoundWeight(d, hn::Vec<DF>{s[v]}).raw;
  }
  KV_UNROLL
  for (int v = 0; v < 4; ++v) {
    s[v] = _mm512_mul_ps(s[v], _mm512_load_ps(t.value_scales + v * kLanes));
  }
  _mm512_store_si512(p, (__m512i)_mm512_cvtne2ps_pbh(s[1], s[0]));
  _mm512_store_si512(p + 32, (__m512i)_mm512_cvtne2ps_pbh(s[3], s[2]));
  return correction;
}

void LoadTileScales(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  constexpr float kLog2E = 1.442695041f;
  const float to_log2 = rows.soft_cap > 0 ? 1.0f : kLog2E;
  load_scales(rows, Side::kK, first, end, rows.score_scale * to_log2, t.key_scales);
  load_scales(rows, Side::kV, first, end, 1.0f, t.value_scales);
}

/// Widens the tile [first, end) to pairs and loads its scales. Pairs beyond the tile's last key are
/// left as they are.
void LoadTile(const AttendRows& rows, int64_t first, int64_t end, const Tile& t) {
  const PageLayout& page = rows.cache->page;
  PairRows(page.side(Side::kK).format, stored_keys(rows, first, end, t.copy), page.head_dim, kTile,
           kTile, t.keys);
  PairRows(page.side(Side::kV).format, stored_values(rows, first, end, t.copy), end - first,
           page.head_dim, t.value_stride, t.values);
  const int64_t unseen = unseen_keys(rows, first, end);
  if (unseen % 2 != 0) ClearFirsts(t.values + unseen / 2 * t.value_stride, t.value_stride);
  LoadTileScales(rows, first, end, t);
}

/// The queries with zeros behind them, so that their length is padded_dim.
void PadQueries(const AttendRows& rows, int64_t padded_dim, uint16_t* q) {
  const int64_t dim = rows.cache->page.head_dim;
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    std::copy_n(rows.q + r * dim, dim, q + r * padded_dim);
    std::fill_n(q + r * padded_dim + dim, padded_dim - dim, uint16_t{0});
  }
}

/// Scratch for rows whose length is padded to a multiple of `step` values.
Tile MakeTile(const AttendRows& rows, int64_t step, AttendScratch& scratch) {
  const int64_t dim = rows.cache->page.head_dim;
  Tile t{};
  t.padded_dim = (dim + step - 1) / step * step;
  const bool copies_queries = t.padded_dim != dim;
  t.value_stride = (dim + 63) / 64 * 64;
  t.acc_stride = (dim + kLanes - 1) / kLanes * kLanes;
  const int64_t query_floats = copies_queries ? (rows.num_rows * t.padded_dim + 31) / 32 * 16 : 0;
  float* at = scratch.get(t.padded_dim / 2 * kTile + kTile / 2 * t.value_stride + 2 * kTile +
                          rows.num_rows * (t.acc_stride + kLanes) + query_floats + dim * kTile / 2);
  const auto take = [&at](int64_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  t.keys = reinterpret_cast<uint32_t*>(take(t.padded_dim / 2 * kTile));
  t.values = reinterpret_cast<uint32_t*>(take(kTile / 2 * t.value_stride));
  t.key_scales = take(kTile);
  t.value_scales = take(kTile);
  t.acc = take(rows.num_rows * t.acc_stride);
  t.sums = take(rows.num_rows * kLanes);
  t.q = rows.q;
  if (copies_queries) {
    auto* q = reinterpret_cast<uint16_t*>(take(query_floats));
    PadQueries(rows, t.padded_dim, q);
    t.q = q;
  }
  t.copy = reinterpret_cast<uint8_t*>(at);
  std::fill_n(t.keys + dim / 2 * kTile, (t.padded_dim - dim) / 2 * kTile, 0u);
  std::fill_n(t.acc, rows.num_rows * (t.acc_stride + kLanes), 0.0f);  // and the sums
  std::fill_n(rows.largest, rows.num_rows, -FLT_MAX);
  return t;
}

/// What the accumulators hold after the last tile.
void WriteRows(const AttendRows& rows, const Tile& t) {
  const int64_t dim = rows.cache->page.head_dim;
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    std::memcpy(rows.out + r * dim, t.acc + r * t.acc_stride,
                static_cast<size_t>(dim) * sizeof(float));
    rows.sum[r] = _mm512_reduce_add_ps(_mm512_load_ps(t.sums + r * kLanes));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
#pragma GCC pop_options
#endif  // HWY_AVX3_DL
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
