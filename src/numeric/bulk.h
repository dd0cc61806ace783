#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/rounding.h"

/// Bulk conversions, dispatched to the best SIMD target that is not forced otherwise
/// (numeric/simd.h). Each gives, bit for bit, what the scalar functions of e4m3.h, bf16.h and f16.h
/// give per element. Pointers need no alignment; inputs and outputs must not overlap.
namespace kv {

/// What an encode had to change beyond rounding. y is the scaled value.
struct EncodeCounts {
  int64_t saturated = 0;  // |y| > 448, infinities included
  int64_t flushed = 0;    // x != 0 that became code +-0
  int64_t nan = 0;        // NaN, stored as NaN

  EncodeCounts& operator+=(const EncodeCounts& other) {
    saturated += other.saturated;
    flushed += other.flushed;
    nan += other.nan;
    return *this;
  }
  bool operator==(const EncodeCounts&) const = default;
};

/// codes[i] = E4M3 of y = x[i] / scale, an IEEE division: the write of a cache with static scales.
///
/// x, codes   [n]
/// scale      finite, > 0
///
/// Saturates at +-448, infinities too; NaN stays NaN. Throws ValueError if the scale is not finite
/// and positive.
EncodeCounts e4m3_encode(const float* x, uint8_t* codes, size_t n, float scale, Rounding rounding);

/// codes[i] = E4M3 of y = x[i] * factor: the write of a cache with inline scales, factor = 1 /
/// scale. Otherwise as e4m3_encode.
EncodeCounts e4m3_encode_multiplied(const float* x, uint8_t* codes, size_t n, float factor,
                                    Rounding rounding);

/// x[i] = the value of codes[i], without a scale. Exact.
void e4m3_decode(const uint8_t* codes, float* x, size_t n);

/// x[i] = the value of halves[i]. Exact; a NaN keeps its bits.
void bf16_decode(const uint16_t* halves, float* x, size_t n);

/// halves[i] = the BF16 nearest to x[i], ties to even; see bf16::encode.
void bf16_encode(const float* x, uint16_t* halves, size_t n);

/// x[i] = the value of halves[i]. Exact; NaN is quieted.
void f16_decode(const uint16_t* halves, float* x, size_t n);

/// The largest finite magnitude of x[0..n), 0 if there is none. NaN and infinities are passed over.
float max_abs(const float* x, size_t n);

}  // namespace kv
