#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decide/verdict.h"

namespace kv {

/// "Deploy fp8_scale1", "Do not store the cache in FP8", "No verdict yet".
std::string outcome_words(const Verdict& verdict);

/// "2 points a bucket, 1 overall, 0.5 for validity (margin standard; one-sided level 0.025)".
std::string margin_words(const DecideOptions& options);

/// Shares of a score as points: -0.005 -> "-0.5".
std::string points(double share);
/// "-0.5 [-2.1, +1.1]".
std::string points_interval(double diff, const Interval& interval);

/// Counts that clusters may have made fractional: "3", "2.5".
std::string count_text(double count);

/// One row of a comparison in words, for buckets, overall and validity alike.
struct ComparisonRow {
  std::string id, label;
  int64_t n = 0, documents = 0;
  double mean_ctrl = 0, mean_cand = 0, diff = 0, losses = 0, gains = 0, deff = 1, margin = 0;
  Interval interval;
  BucketVerdict verdict = BucketVerdict::kUnresolved;
  double p_ni = 1, p_loss_holm = 1;
  std::string note;
};

/// Buckets first, then overall and validity.
std::vector<ComparisonRow> rows_of(const ArmTable& table);

/// "non-inferior", "material loss", ...
std::string verdict_words(BucketVerdict verdict);

}  // namespace kv
