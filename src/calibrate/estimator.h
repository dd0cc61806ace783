#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "calibrate/value_histogram.h"

namespace kv {

/// How magnitudes that were seen become the scale of a layer and side, or of a head of them.
///
///   kAmax        the largest magnitude; nothing that was seen clips
///   kPercentile  the magnitude that so many per cent do not exceed; the rest clips
///   kMse         of 64 candidates from 0.3 to 1 times the largest, the one with the least mean
///                square error of E4M3, rounded to nearest
///   kPow2        as kAmax, with the scale rounded up to a power of two
struct Estimator {
  enum class Kind : uint8_t { kAmax, kPercentile, kMse, kPow2 };
  Kind kind = Kind::kAmax;
  double percent = 0;  // kPercentile: of |x|, above 0, at most 100

  /// "amax", "percentile:99.99", "mse", "pow2". Throws ValueError naming what was found.
  static Estimator parse(std::string_view text);

  std::string_view name() const;  // without the percentage
  std::string text() const;       // as parse() reads it

  /// Whether the largest magnitude does not say it all.
  bool needs_values() const { return kind == Kind::kPercentile || kind == Kind::kMse; }

  bool operator==(const Estimator&) const = default;
};

inline constexpr int kMseCandidates = 64;

/// Candidate `i` of 0 to 63: (0.3 + 0.7 i / 63) amax, ascending, the last one amax itself.
float mse_candidate(float amax, int i);

/// The magnitude that a scale shall map to 448. 0 when nothing but zeros was seen. A percentile is
/// the nearest rank: the least magnitude that at least so many per cent do not exceed. Of
/// candidates with equal errors the largest wins.
float estimate_range(const Estimator& estimator, const ValueHistogram& values);

/// range / 448, rounded up to what BF16 holds, or to a power of two; 1 for a range of 0.
float scale_of_range(const Estimator& estimator, float range);

}  // namespace kv
