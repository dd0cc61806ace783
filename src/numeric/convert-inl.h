// Per-target pieces of the conversions, for kernels of any room: include after hwy/foreach_target.h
// and call from within HWY_NAMESPACE. They load and store exactly Lanes(d) elements, need no
// alignment, and agree with the scalar functions bit for bit.

#if defined(KV_NUMERIC_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_NUMERIC_CONVERT_INL_H_
#undef KV_NUMERIC_CONVERT_INL_H_
#else
#define KV_NUMERIC_CONVERT_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "numeric/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3_DL

/// The two bytes of every value without its sign as a BF16, which holds all of E4M3, and for each
/// 16 of 64 codes the places of their bytes in [64 lower bytes, 64 upper bytes].
struct E4m3ByteTables {
  alignas(64) uint8_t lower[128];
  alignas(64) uint8_t upper[128];
  alignas(64) uint8_t places[4][64];
};

constexpr E4m3ByteTables MakeE4m3ByteTables() {
  E4m3ByteTables tables{};
  for (size_t code = 0; code < 128; ++code) {
    const uint32_t bits = std::bit_cast<uint32_t>(e4m3::kDecodeTable[code]);
    tables.lower[code] = static_cast<uint8_t>(bits >> 16);
    tables.upper[code] = static_cast<uint8_t>(bits >> 24);
  }
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    for (size_t lane = 0; lane < 16; ++lane) {
      tables.places[quarter][4 * lane + 2] = static_cast<uint8_t>(16 * quarter + lane);
      tables.places[quarter][4 * lane + 3] = static_cast<uint8_t>(64 + 16 * quarter + lane);
    }
  }
  return tables;
}

inline constexpr E4m3ByteTables kE4m3ByteTables = MakeE4m3ByteTables();

/// 64 codes (or fewer, in the lower bytes) as BF16 whose lower and upper bytes lie apart. Two byte
/// look-ups for 64 codes, where the way through F16 takes two conversions for 16.
struct E4m3Bytes {
  __m512i lower;
  __m512i upper;

  explicit HWY_INLINE E4m3Bytes(__m512i codes) {
    const uint8_t* low = kE4m3ByteTables.lower;
    const uint8_t* high = kE4m3ByteTables.upper;
    lower = _mm512_permutex2var_epi8(_mm512_load_si512(low), codes, _mm512_load_si512(low + 64));
    upper = _mm512_permutex2var_epi8(_mm512_load_si512(high), codes, _mm512_load_si512(high + 64));
    constexpr int kFirstOrSecondAndThird = 0xf8;
    upper = _mm512_ternarylogic_epi32(upper, codes, _mm512_set1_epi8(static_cast<char>(0x80)),
                                      kFirstOrSecondAndThird);
  }

  template <size_t kQuarter>
  HWY_INLINE __m512 values() const {
    constexpr uint64_t kUpperHalfOfEachLane = 0xcccccccccccccccc;
    const __m512i places = _mm512_load_si512(kE4m3ByteTables.places[kQuarter]);
    return _mm512_castsi512_ps(
        _mm512_maskz_permutex2var_epi8(kUpperHalfOfEachLane, lower, places, upper));
  }
};

#endif  // HWY_AVX3_DL

/// The values of Lanes(d) E4M3 codes, without a scale. Exact; NaN codes give NaN.
template <class D>
HWY_INLINE hn::Vec<D> LoadE4m3(D d, const uint8_t* HWY_RESTRICT codes) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, e4m3::decode(*codes));
#else
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(D()) == 16) {
    const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    return hn::Vec<D>{E4m3Bytes(_mm512_zextsi128_si512(loaded)).template values<0>()};
  }
#endif
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  // s.eeee.mmm becomes the F16 s.0eeee.mmm0000000, which is 2^-8 of the value, for subnormals too.
  // Sign extension puts s into bit 15, and into bit 14, which has to go.
  const auto extended = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
  const auto finite =
      hn::And(hn::ShiftLeft<7>(extended), hn::Set(d16, static_cast<int16_t>(0xbfff)));
  // Only NaN has all of bits 7 to 13 set: adding one there carries into bit 14, and with that bit
  // the exponent is 31 and the mantissa not 0, an F16 NaN.
  const auto carry = hn::And(hn::Add(finite, hn::Set(d16, 0x80)), hn::Set(d16, 0x4000));
  const auto over_256 = hn::PromoteTo(d, hn::BitCast(df16, hn::Or(finite, carry)));
  return hn::Mul(over_256, hn::Set(d, 256.0f));
#endif
}

/// The values of 4 * Lanes(d) E4M3 codes, as four vectors in order. The fastest way to decode.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void LoadE4m3x4(D d, const uint8_t* HWY_RESTRICT codes, V& v0, V& v1, V& v2, V& v3) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(D()) == 16) {
    const E4m3Bytes bytes(_mm512_loadu_si512(codes));
    v0 = V{bytes.template values<0>()};
    v1 = V{bytes.template values<1>()};
    v2 = V{bytes.template values<2>()};
    v3 = V{bytes.template values<3>()};
    return;
  }
#endif
  const size_t lanes = hn::Lanes(d);
  v0 = LoadE4m3(d, codes);
  v1 = LoadE4m3(d, codes + lanes);
  v2 = LoadE4m3(d, codes + 2 * lanes);
  v3 = LoadE4m3(d, codes + 3 * lanes);
}

/// The values of Lanes(d) BF16. Exact; a NaN keeps its bits.
template <class D>
HWY_INLINE hn::Vec<D> LoadBf16(D d, const uint16_t* HWY_RESTRICT halves) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, halves))));
}

/// The values of Lanes(d) F16. Exact; NaN is quieted.
template <class D>
HWY_INLINE hn::Vec<D> LoadF16(D d, const uint16_t* HWY_RESTRICT halves) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, f16::decode(*halves));
#else
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, halves)));
#endif
}

/// The bits of the BF16 nearest to each lane, ties to even, in the lower half of 32-bit lanes; NaN
/// is quieted. Integer rounding, because AVX512-BF16's own conversion flushes subnormals.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> EncodeBf16(D /*d*/, V v) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto is_odd = hn::And(upper, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(is_odd, hn::Set(d32, 0x7fffu))));
  const auto quieted = hn::Or(upper, hn::Set(d32, 0x40u));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quieted, rounded);
}

/// Writes Lanes(d) BF16, rounded as EncodeBf16 does.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreBf16(D d, V v, uint16_t* HWY_RESTRICT halves) {
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(d32, EncodeBf16(d, v))), d16, halves);
}

/// E4M3 magnitudes, 0 to 0x7e, of magnitudes 0 to 448 given by their F32 bits.
template <Rounding kRounding, class D, class VU = hn::Vec<hn::RebindToUnsigned<D>>>
HWY_INLINE VU EncodeE4m3Magnitude([[maybe_unused]] D d, VU bits) {
  const hn::RebindToUnsigned<D> d32;
  if constexpr (kRounding == Rounding::kNearestEven) {
    // Adding 2^20 times the power of two below (2^-6 for all smaller ones) leaves three mantissa
    // bits below it: the addition rounds to the code's own step, ties to even.
    const auto exponent = hn::Max(hn::And(bits, hn::Set(d32, 0x7f800000u)),
                                  hn::Set(d32, std::bit_cast<uint32_t>(e4m3::kMinNormal)));
    const auto base = hn::Add(exponent, hn::Set(d32, 20u << 23));
    const auto sum = hn::BitCast(d32, hn::Add(hn::BitCast(d, bits), hn::BitCast(d, base)));
    // sum - base counts steps: 8 to 16 in a binade, 0 to 8 below 2^-6, whose exponent field is 121.
    return hn::Add(hn::Sub(sum, base),
                   hn::Sub(hn::ShiftRight<20>(exponent), hn::Set(d32, 121u << 3)));
  } else {
    const hn::RebindToSigned<D> di32;
    const auto normal = hn::Sub(hn::ShiftRight<20>(bits), hn::Set(d32, (127u - 7) << 3));
    const auto steps = hn::Mul(hn::BitCast(d, bits), hn::Set(d, 1 / e4m3::kMinSubnormal));
    const auto subnormal = hn::BitCast(d32, hn::ConvertTo(di32, steps));
    const auto is_subnormal = hn::Lt(hn::BitCast(d, bits), hn::Set(d, e4m3::kMinNormal));
    return hn::IfThenElse(hn::RebindMask(d32, is_subnormal), subnormal, normal);
  }
}

/// The E4M3 codes of v, one in each 32-bit lane: saturating at +-448, NaN kept, as e4m3::encode.
template <Rounding kRounding = Rounding::kNearestEven, class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> EncodeE4m3(D d, V v) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffffffu));
  const auto limited = hn::Min(magnitude, hn::Set(d32, std::bit_cast<uint32_t>(e4m3::kMax)));
  const auto number = EncodeE4m3Magnitude<kRounding>(d, limited);
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto code = hn::IfThenElse(is_nan, hn::Set(d32, uint32_t{e4m3::kNanCode}), number);
  return hn::Or(code, hn::And(hn::ShiftRight<24>(bits), hn::Set(d32, 0x80u)));
}

/// Writes the Lanes(d) codes of v.
template <Rounding kRounding = Rounding::kNearestEven, class D, class V = hn::Vec<D>>
HWY_INLINE void StoreE4m3(D d, V v, uint8_t* HWY_RESTRICT codes) {
  const hn::Rebind<uint8_t, D> d8;
  hn::StoreU(hn::U8FromU32(EncodeE4m3<kRounding>(d, v)), d8, codes);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
