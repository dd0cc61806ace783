#pragma once

#include <span>

#include "stats/paired.h"

namespace kv {

/// How many questions a comparison would have needed (method 4.11), from what it saw: the variance
/// of the paired difference is the upper confidence bound of its flip rate (binary scores, or none
/// flipped), never below the flip rate of the control's repeat; clustering multiplies by the design
/// effect.
struct SamplePlan {
  double alpha = 0.025;  // one-sided
  double power = 0.9;    // of one bucket
  double least_flips = 0;

  /// Questions in this bucket for NON_INFERIOR at `margin` if there is no loss.
  double questions(const PairedSummary& bucket, double margin) const;

  /// Questions per bucket for the mean over all.
  double questions_pooled(std::span<const PairedSummary> buckets, double margin) const;

  /// Questions per bucket to show a pooled difference of `diff` > 0.
  double questions_to_detect(std::span<const PairedSummary> buckets, double diff) const;
};

}  // namespace kv
