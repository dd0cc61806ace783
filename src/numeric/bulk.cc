#include "numeric/bulk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/dispatch.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/bulk.cc"
#include "hwy/foreach_target.h"
// highway.h and per-target headers must follow foreach_target.h.
#include "hwy/highway.h"
#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;

int64_t compiled_target() { return HWY_TARGET; }

/// EncodeCounts of whole vectors, one sum per lane.
class LaneCounts {
 public:
  // Written out, because GCC compiles implicit constructors without this target's instructions.
  HWY_INLINE LaneCounts()
      : saturated_(hn::Zero(DU())), flushed_(hn::Zero(DU())), nan_(hn::Zero(DU())) {}

  /// v    what was encoded, after scaling;  was_zero  where the input was +-0;  codes  its codes
  HWY_INLINE void add(hn::Vec<DF> v, hn::Mask<DU> was_zero, hn::Vec<DU> codes) {
    const DF df;
    const DU du;
    const auto magnitude = hn::Abs(v);
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    const auto is_above = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(df, e4m3::kMax)));
    const auto is_code_zero = hn::Eq(hn::And(codes, hn::Set(du, 0x7fu)), hn::Zero(du));
    nan_ = plus_one_where(is_nan, nan_);
    saturated_ = plus_one_where(is_above, saturated_);
    flushed_ = plus_one_where(hn::AndNot(was_zero, is_code_zero), flushed_);
  }

  EncodeCounts total() const { return {sum(saturated_), sum(flushed_), sum(nan_)}; }

 private:
  static HWY_INLINE hn::Vec<DU> plus_one_where(hn::Mask<DU> mask, hn::Vec<DU> counts) {
    return hn::IfThenElse(mask, hn::Add(counts, hn::Set(DU(), 1u)), counts);
  }

  static int64_t sum(hn::Vec<DU> counts) {
    HWY_ALIGN uint32_t lanes[hn::MaxLanes(DU())];
    hn::Store(counts, DU(), lanes);
    int64_t total = 0;
    for (const uint32_t count : lanes) total += count;
    return total;
  }

  hn::Vec<DU> saturated_;
  hn::Vec<DU> flushed_;
  hn::Vec<DU> nan_;
};

template <Rounding kRounding, bool kDivides>
HWY_INLINE hn::Vec<DU> encode_vector(hn::Vec<DF> x, hn::Vec<DF> scale, LaneCounts& counts) {
  const DF df;
  const DU du;
  const auto v = kDivides ? hn::Div(x, scale) : hn::Mul(x, scale);
  const auto codes = EncodeE4m3<kRounding>(df, v);
  counts.add(v, hn::RebindMask(du, hn::Eq(x, hn::Zero(df))), codes);
  return codes;
}

template <Rounding kRounding, bool kDivides>
EncodeCounts encode(const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT codes, size_t n,
                    float scale) {
  const DF df;
  const hn::Rebind<uint8_t, DF> d8;
  const size_t lanes = hn::Lanes(df);
  const auto scales = hn::Set(df, scale);
  LaneCounts counts;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto out = encode_vector<kRounding, kDivides>(hn::LoadU(df, x + i), scales, counts);
    hn::StoreU(hn::U8FromU32(out), d8, codes + i);
  }
  if (i < n) {
    // Zeros in the unused lanes are neither flushed nor saturated, so the counts stay right.
    HWY_ALIGN float last_x[hn::MaxLanes(DF())] = {};
    HWY_ALIGN uint8_t last_codes[hn::MaxLanes(DF())];
    std::copy(x + i, x + n, last_x);
    const auto out = encode_vector<kRounding, kDivides>(hn::Load(df, last_x), scales, counts);
    hn::StoreU(hn::U8FromU32(out), d8, last_codes);
    std::copy(last_codes, last_codes + (n - i), codes + i);
  }
  return counts.total();
}

EncodeCounts encode_divided(const float* x, uint8_t* codes, size_t n, float scale,
                            Rounding rounding) {
  if (rounding == Rounding::kTruncate) return encode<Rounding::kTruncate, true>(x, codes, n, scale);
  return encode<Rounding::kNearestEven, true>(x, codes, n, scale);
}

EncodeCounts encode_multiplied(const float* x, uint8_t* codes, size_t n, float factor,
                               Rounding rounding) {
  if (rounding == Rounding::kTruncate) {
    return encode<Rounding::kTruncate, false>(x, codes, n, factor);
  }
  return encode<Rounding::kNearestEven, false>(x, codes, n, factor);
}

void decode_e4m3(const uint8_t* HWY_RESTRICT codes, float* HWY_RESTRICT x, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    hn::Vec<DF> v0, v1, v2, v3;
    LoadE4m3x4(df, codes + i, v0, v1, v2, v3);
    hn::StoreU(v0, df, x + i);
    hn::StoreU(v1, df, x + i + lanes);
    hn::StoreU(v2, df, x + i + 2 * lanes);
    hn::StoreU(v3, df, x + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(LoadE4m3(df, codes + i), df, x + i);
  for (; i < n; ++i) x[i] = e4m3::decode(codes[i]);
}

void decode_bf16(const uint16_t* HWY_RESTRICT halves, float* HWY_RESTRICT x, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(LoadBf16(df, halves + i), df, x + i);
  for (; i < n; ++i) x[i] = bf16::decode(halves[i]);
}

#if HWY_TARGET == HWY_AVX3_DL

/// Encodes whole groups of 32 by AVX512-BF16 and returns how many elements that were. The
/// instruction takes subnormals for zeros; a group that has one is rounded by integers instead.
__attribute__((target("avx512bf16"))) size_t encode_bf16_groups(const float* HWY_RESTRICT x,
                                                                uint16_t* HWY_RESTRICT halves,
                                                                size_t n) {
  constexpr int kIsSubnormal = 0x20;
  const DF df;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512 first = _mm512_loadu_ps(x + i);
    const __m512 second = _mm512_loadu_ps(x + i + 16);
    const __mmask16 in_first = _mm512_fpclass_ps_mask(first, kIsSubnormal);
    const __mmask16 in_second = _mm512_fpclass_ps_mask(second, kIsSubnormal);
    if (HWY_UNLIKELY((in_first | in_second) != 0)) {
      StoreBf16(df, hn::Vec<DF>{first}, halves + i);
      StoreBf16(df, hn::Vec<DF>{second}, halves + i + 16);
      continue;
    }
    const __m512bh both = _mm512_cvtne2ps_pbh(second, first);
    _mm512_storeu_si512(halves + i, reinterpret_cast<__m512i>(both));
  }
  return i;
}

#endif  // HWY_AVX3_DL

void encode_bf16(const float* HWY_RESTRICT x, uint16_t* HWY_RESTRICT halves, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
#if HWY_TARGET == HWY_AVX3_DL
  if (avx512_bf16_allowed()) i = encode_bf16_groups(x, halves, n);
#endif
  for (; i + lanes <= n; i += lanes) StoreBf16(df, hn::LoadU(df, x + i), halves + i);
  for (; i < n; ++i) halves[i] = bf16::encode(x[i]);
}

void decode_f16(const uint16_t* HWY_RESTRICT halves, float* HWY_RESTRICT x, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(LoadF16(df, halves + i), df, x + i);
  for (; i < n; ++i) x[i] = f16::decode(halves[i]);
}

float largest_magnitude(const float* HWY_RESTRICT x, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  auto largest = hn::Zero(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(df, x + i);
    largest = hn::Max(largest, hn::IfThenElseZero(hn::IsFinite(v), hn::Abs(v)));
  }
  float result = hn::GetLane(hn::MaxOfLanes(df, largest));
  for (; i < n; ++i) {
    if (std::isfinite(x[i])) result = std::max(result, std::abs(x[i]));
  }
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {
namespace {

HWY_EXPORT(compiled_target);
HWY_EXPORT(encode_divided);
HWY_EXPORT(encode_multiplied);
HWY_EXPORT(decode_e4m3);
HWY_EXPORT(decode_bf16);
HWY_EXPORT(encode_bf16);
HWY_EXPORT(decode_f16);
HWY_EXPORT(largest_magnitude);

void check_factor(const char* function, const char* name, float value) {
  if (std::isfinite(value) && value > 0) return;
  throw ValueError(
      fmt::format("{}: {}: expected a finite number > 0, found {}", function, name, value));
}

}  // namespace

int64_t dispatched_highway_target() { return HWY_DYNAMIC_DISPATCH(compiled_target)(); }

EncodeCounts e4m3_encode(const float* x, uint8_t* codes, size_t n, float scale, Rounding rounding) {
  check_factor("e4m3_encode", "scale", scale);
  return HWY_DYNAMIC_DISPATCH(encode_divided)(x, codes, n, scale, rounding);
}

EncodeCounts e4m3_encode_multiplied(const float* x, uint8_t* codes, size_t n, float factor,
                                    Rounding rounding) {
  check_factor("e4m3_encode_multiplied", "factor", factor);
  return HWY_DYNAMIC_DISPATCH(encode_multiplied)(x, codes, n, factor, rounding);
}

void e4m3_decode(const uint8_t* codes, float* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(decode_e4m3)(codes, x, n);
}

void bf16_decode(const uint16_t* halves, float* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(decode_bf16)(halves, x, n);
}

void bf16_encode(const float* x, uint16_t* halves, size_t n) {
  HWY_DYNAMIC_DISPATCH(encode_bf16)(x, halves, n);
}

void f16_decode(const uint16_t* halves, float* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(decode_f16)(halves, x, n);
}

float max_abs(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(largest_magnitude)(x, n); }

}  // namespace kv
#endif  // HWY_ONCE
