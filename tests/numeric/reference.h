#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "numeric/rounding.h"

/// Small floats by their definition: a table of every value in double, and a search for the
/// nearest. Shares nothing with the code under test.
class TableFormat {
 public:
  /// num_codes  how many codes from 0 up are finite numbers
  /// saturates  values beyond the last one become it; otherwise the code after it is infinity
  TableFormat(int mantissa_bits, int bias, int num_codes, bool saturates) {
    const int steps = 1 << mantissa_bits;
    for (int code = 0; code < num_codes + (saturates ? 0 : 1); ++code) {
      const int exponent = code / steps, mantissa = code % steps;
      values_.push_back(exponent == 0
                            ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                            : std::ldexp(steps + mantissa, exponent - bias - mantissa_bits));
    }
  }

  double value(int code) const { return values_[code]; }
  int largest_code() const { return static_cast<int>(values_.size()) - 1; }

  /// The code of |x|, for x not NaN.
  int nearest(double x, kv::Rounding rounding) const {
    const double magnitude = std::abs(x);
    if (magnitude >= values_.back()) return largest_code();
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    const int low = static_cast<int>(above - values_.begin()) - 1;
    if (rounding == kv::Rounding::kTruncate) return low;
    const double to_low = magnitude - values_[low], to_high = values_[low + 1] - magnitude;
    if (to_low != to_high) return to_low < to_high ? low : low + 1;
    return low % 2 == 0 ? low : low + 1;
  }

 private:
  std::vector<double> values_;
};

inline const TableFormat& e4m3_table() {
  static const TableFormat table(3, 7, 127, true);
  return table;
}

inline const TableFormat& e5m2_table() {
  static const TableFormat table(2, 15, 124, true);
  return table;
}

/// The infinity of the two wider formats stands where the next value would be: 2^16 and 2^128.
inline const TableFormat& f16_table() {
  static const TableFormat table(10, 15, 31744, false);
  return table;
}

inline const TableFormat& bf16_table() {
  static const TableFormat table(7, 127, 32640, false);
  return table;
}

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr kv::Rounding kBothRoundings[] = {kv::Rounding::kNearestEven,
                                                  kv::Rounding::kTruncate};

inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
