#pragma once

#include <bit>
#include <cstdint>

#include "numeric/minifloat.h"

/// BF16 is the upper half of an F32.
namespace kv::bf16 {

/// The BF16 nearest to x, ties to even. Values that round past the largest finite BF16 become
/// infinity, infinities stay, NaN is quieted and keeps the upper bits of its payload.
constexpr uint16_t encode(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (minifloat::magnitude_bits(x) > minifloat::kInfF32) {
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// The value of a BF16, exact; a NaN keeps its bits.
constexpr float decode(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

/// The smallest BF16 that is not below x, for x finite and >= 0: what a scale of amax / 448 is
/// rounded to, so that amax / scale never exceeds 448. Infinity beyond the largest finite BF16.
constexpr float round_up(float x) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0xffff) & 0xffff0000);
}

}  // namespace kv::bf16
