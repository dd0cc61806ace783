#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stats/intervals.h"

namespace kv {

/// Two arms on the same examples; every difference is candidate minus control, a loss is negative.
/// se_iid treats examples as independent, se_cr0 and se_cr1 cluster them (moments.h); without
/// clusters every example is its own, and se_cr1 equals se_iid.
struct PairedSummary {
  size_t n = 0;
  size_t clusters = 0;
  bool is_clustered = false;  // cluster ids were given
  bool is_binary = false;     // every score is 0 or 1
  double mean_control = 0;
  double mean_candidate = 0;
  double se_control = 0;
  double se_candidate = 0;
  double diff = 0;
  double sd = 0;  // of the differences, n - 1
  double se_iid = 0;
  double se_cr0 = 0;
  double se_cr1 = 0;
  double deff = 1;    // max(1, se_cr1^2 / se_iid^2)
  size_t losses = 0;  // examples on which the candidate scores lower; b of a binary score
  size_t gains = 0;   // higher; c
};

/// control, candidate [n] finite scores of the same examples in the same order, n >= 2;
/// cluster_ids [n] (document, conversation or template seed) or empty. Throws ValueError.
PairedSummary summarize_pairs(std::span<const double> control, std::span<const double> candidate,
                              std::span<const int64_t> cluster_ids = {});

/// Ratio of means candidate / control with the standard error of its logarithm (delta method:
/// the error of the mean of candidate_i / mean_candidate - control_i / mean_control).
struct Recovery {
  double ratio = 1;
  double log_se = 0;
  double df = 0;  // n - 1, or clusters - 1

  /// ratio * exp(+- bound * log_se); bound a critical z or t.
  Interval interval(double bound) const;
};

/// As summarize_pairs; both means must be positive, else ValueError.
Recovery recovery_ratio(std::span<const double> control, std::span<const double> candidate,
                        std::span<const int64_t> cluster_ids = {});

}  // namespace kv
