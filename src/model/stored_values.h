#pragma once

#include <cstdint>
#include <span>

#include "numeric/rounding.h"

namespace kv {

/// What a 16-bit page holds of a key or value.
///   kOfFormat  all that the page's format can
///   kE5m2      E5M2 values only, in BF16 pages: each of them is a BF16 value, so that what is read
///              is, bit for bit, what a cache of E5M2 codes with scale 1.0 gives back
///   kE4m3      likewise E4M3 values
enum class StoredValues : uint8_t { kOfFormat, kE5m2, kE4m3 };

/// Rounds BF16 values to those of a format in place: finite values and infinities saturate at its
/// largest, NaN stays NaN. Nothing for kOfFormat.
void round_to(StoredValues values, std::span<uint16_t> halves, Rounding rounding);

}  // namespace kv
