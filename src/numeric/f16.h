#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "numeric/minifloat.h"
#include "numeric/rounding.h"

/// F16 is IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits.
namespace kv::f16 {

/// The F16 nearest to x, ties to even. From 65520 up the result is infinity; subnormals are exact
/// to half a unit of 2^-24; NaN is quieted and keeps the upper bits of its payload.
constexpr uint16_t encode(float x) {
  const uint32_t sign = (std::bit_cast<uint32_t>(x) & minifloat::kSignF32) >> 16;
  const uint32_t magnitude = minifloat::magnitude_bits(x);
  if (magnitude > minifloat::kInfF32) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  const uint32_t field = minifloat::encode_magnitude<10, 15>(magnitude, Rounding::kNearestEven);
  return static_cast<uint16_t>(sign | std::min(field, 0x7c00u));
}

/// The value of an F16, exact. NaN is quieted.
constexpr float decode(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t field = half & 0x7fffu;
  if (field == 0x7c00) return std::bit_cast<float>(sign | minifloat::kInfF32);
  if (field > 0x7c00) return std::bit_cast<float>(sign | 0x7fc00000 | ((field & 0x3ff) << 13));
  const float magnitude = minifloat::decode_magnitude<10, 15>(field);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

}  // namespace kv::f16
