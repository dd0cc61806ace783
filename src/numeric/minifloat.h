#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "numeric/rounding.h"

/// What E4M3, E5M2 and F16 share: from the bits of an F32 magnitude to a smaller float, by integer
/// arithmetic, so that neither the rounding mode nor flush-to-zero of the FPU matters.
namespace kv::minifloat {

inline constexpr uint32_t kSignF32 = 0x80000000;
inline constexpr uint32_t kInfF32 = 0x7f800000;

constexpr uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & ~kSignF32; }

/// value / 2^shift as an integer; 0 <= shift <= 31.
constexpr uint32_t shift_rounded(uint32_t value, int shift, Rounding rounding) {
  const uint32_t kept = value >> shift;
  if (rounding == Rounding::kTruncate || shift == 0) return kept;
  const uint32_t half = 1u << (shift - 1);
  const uint32_t dropped = value & ((1u << shift) - 1);
  const bool up = dropped > half || (dropped == half && (kept & 1) != 0);
  return kept + (up ? 1 : 0);
}

/// Exponent and mantissa field of the code nearest to a finite F32 magnitude, given by its bits.
/// Not limited: what is too large for the format yields a field above its largest finite one.
template <int kMantissaBits, int kBias>
constexpr uint32_t encode_magnitude(uint32_t magnitude, Rounding rounding) {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr int kRebias = 127 - kBias;
  const int exponent = static_cast<int>(magnitude >> 23);
  // A carry out of the mantissa moves on into the exponent, which is what rounding up means.
  if (exponent > kRebias) {
    return shift_rounded(magnitude, kDropped, rounding) - (uint32_t{kRebias} << kMantissaBits);
  }
  // Subnormal codes count units of 2^(1 - bias - mantissa bits). Shifts past 24 bits leave less
  // than half a unit, so any of them gives 0.
  const uint32_t significand = (magnitude & 0x7fffff) | (exponent > 0 ? 0x800000u : 0u);
  return shift_rounded(significand, std::min(kDropped + kRebias + 1 - exponent, 31), rounding);
}

/// The value of an exponent and mantissa field that is finite. Exact.
template <int kMantissaBits, int kBias>
constexpr float decode_magnitude(uint32_t field) {
  constexpr uint32_t kRebias = 127 - kBias;
  if (field >> kMantissaBits == 0) {
    constexpr uint32_t kUnitExponent = kRebias + 1 - kMantissaBits;
    return static_cast<float>(field) * std::bit_cast<float>(kUnitExponent << 23);
  }
  return std::bit_cast<float>((field << (23 - kMantissaBits)) + (kRebias << 23));
}

}  // namespace kv::minifloat
