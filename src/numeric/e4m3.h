#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "numeric/minifloat.h"
#include "numeric/rounding.h"

/// E4M3 of OCP OFP8 1.0 (the "fn" variant): 1 sign, 4 exponent (bias 7), 3 mantissa bits, no
/// infinities, NaN 0x7f and 0xff.
namespace kv::e4m3 {

inline constexpr float kMax = 448;  // S.1111.110, OCP OFP8 1.0
inline constexpr float kMinNormal = 0x1p-6f;
inline constexpr float kMinSubnormal = 0x1p-9f;
inline constexpr uint8_t kMaxCode = 0x7e;
inline constexpr uint8_t kNanCode = 0x7f;

/// The code of x, rounded once, from F32. Finite values beyond +-448 and infinities saturate to
/// +-448; NaN becomes 0x7f or, with its sign bit set, 0xff.
constexpr uint8_t encode(float x, Rounding rounding = Rounding::kNearestEven) {
  constexpr uint32_t kMaxBits = std::bit_cast<uint32_t>(kMax);
  const uint32_t sign = (std::bit_cast<uint32_t>(x) & minifloat::kSignF32) >> 24;
  const uint32_t magnitude = minifloat::magnitude_bits(x);
  if (magnitude > minifloat::kInfF32) return static_cast<uint8_t>(sign | kNanCode);
  if (magnitude >= kMaxBits) return static_cast<uint8_t>(sign | kMaxCode);
  return static_cast<uint8_t>(sign | minifloat::encode_magnitude<3, 7>(magnitude, rounding));
}

namespace detail {

constexpr float decode_slowly(uint32_t code) {
  const uint32_t sign = (code & 0x80) << 24;
  // NaN keeps its mantissa bits, as a widening conversion of hardware does.
  if ((code & 0x7f) == kNanCode) return std::bit_cast<float>(sign | 0x7ff00000);
  const float magnitude = minifloat::decode_magnitude<3, 7>(code & 0x7f);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr std::array<float, 256> decode_table() {
  std::array<float, 256> table{};
  for (uint32_t code = 0; code < 256; ++code) table[code] = decode_slowly(code);
  return table;
}

}  // namespace detail

inline constexpr std::array<float, 256> kDecodeTable = detail::decode_table();

/// The value of a code, exact. Both NaN codes give quiet NaNs of their sign.
constexpr float decode(uint8_t code) { return kDecodeTable[code]; }

}  // namespace kv::e4m3
