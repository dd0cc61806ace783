#pragma once

#include <cstdint>

namespace kv {

/// How a conversion drops bits: to the nearest code with ties to the even one, or towards zero.
enum class Rounding : uint8_t { kNearestEven, kTruncate };

}  // namespace kv
