#pragma once

#include <bit>
#include <cstdint>

#include "numeric/f16.h"
#include "numeric/minifloat.h"
#include "numeric/rounding.h"

/// E5M2 of OCP OFP8 1.0: 1 sign, 5 exponent (bias 15), 2 mantissa bits; infinities 0x7c and 0xfc,
/// NaN 0x7d to 0x7f and 0xfd to 0xff. It is the upper byte of an F16.
namespace kv::e5m2 {

inline constexpr float kMax = 57344;  // S.11110.11, OCP OFP8 1.0
inline constexpr uint8_t kMaxCode = 0x7b;
inline constexpr uint8_t kNanCode = 0x7f;

/// The code of x, rounded once, from F32. Finite values beyond +-57344 and infinities saturate to
/// +-57344, so no infinity is ever written; NaN becomes 0x7f or, with its sign bit set, 0xff.
constexpr uint8_t encode(float x, Rounding rounding = Rounding::kNearestEven) {
  constexpr uint32_t kMaxBits = std::bit_cast<uint32_t>(kMax);
  const uint32_t sign = (std::bit_cast<uint32_t>(x) & minifloat::kSignF32) >> 24;
  const uint32_t magnitude = minifloat::magnitude_bits(x);
  if (magnitude > minifloat::kInfF32) return static_cast<uint8_t>(sign | kNanCode);
  if (magnitude >= kMaxBits) return static_cast<uint8_t>(sign | kMaxCode);
  return static_cast<uint8_t>(sign | minifloat::encode_magnitude<2, 15>(magnitude, rounding));
}

/// The value of a code, exact: the infinity codes give infinities, the NaN codes quiet NaNs.
constexpr float decode(uint8_t code) { return f16::decode(static_cast<uint16_t>(code << 8)); }

}  // namespace kv::e5m2
