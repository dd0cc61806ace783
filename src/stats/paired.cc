#include "stats/paired.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "stats/check.h"
#include "stats/moments.h"

namespace kv {
namespace {

bool all_zero_or_one(std::span<const double> scores) {
  return std::all_of(scores.begin(), scores.end(), [](double s) { return s == 0 || s == 1; });
}

void check_pairs(const char* function, std::span<const double> control,
                 std::span<const double> candidate) {
  require_same_size(function, "candidate", candidate.size(), "control", control.size());
  require(control.size() >= 2, function, "n", static_cast<double>(control.size()), "at least 2");
  require_finite(function, "control", control);
  require_finite(function, "candidate", candidate);
}

/// Errors of a mean; without ids every value is its own cluster, for which cr1 is the iid error.
ClusteredError error_of(std::span<const double> values, std::span<const int64_t> cluster_ids,
                        double se_iid) {
  if (!cluster_ids.empty()) return clustered_error(values, cluster_ids);
  const double n = static_cast<double>(values.size());
  return {values.size(), se_iid * std::sqrt((n - 1) / n), se_iid};
}

}  // namespace

PairedSummary summarize_pairs(std::span<const double> control, std::span<const double> candidate,
                              std::span<const int64_t> cluster_ids) {
  check_pairs("summarize_pairs", control, candidate);
  PairedSummary out;
  std::vector<double> diffs(control.size());
  for (size_t i = 0; i < diffs.size(); ++i) {
    diffs[i] = candidate[i] - control[i];
    out.losses += diffs[i] < 0;
    out.gains += diffs[i] > 0;
  }
  const MeanEstimate ctrl = mean_estimate(control), cand = mean_estimate(candidate);
  const MeanEstimate diff = mean_estimate(diffs);
  const ClusteredError clustered = error_of(diffs, cluster_ids, diff.se);
  out.n = diffs.size();
  out.clusters = clustered.clusters;
  out.is_clustered = !cluster_ids.empty();
  out.is_binary = all_zero_or_one(control) && all_zero_or_one(candidate);
  out.mean_control = ctrl.mean;
  out.mean_candidate = cand.mean;
  out.se_control = ctrl.se;
  out.se_candidate = cand.se;
  out.diff = diff.mean;
  out.sd = diff.sd;
  out.se_iid = diff.se;
  out.se_cr0 = clustered.cr0;
  out.se_cr1 = clustered.cr1;
  out.deff = design_effect(diff.se, clustered.cr1);
  return out;
}

Interval Recovery::interval(double bound) const {
  const Interval log_factor = symmetric_interval(0, log_se, bound);
  return {ratio * std::exp(log_factor.lo), ratio * std::exp(log_factor.hi)};
}

Recovery recovery_ratio(std::span<const double> control, std::span<const double> candidate,
                        std::span<const int64_t> cluster_ids) {
  check_pairs("recovery_ratio", control, candidate);
  const double mean_control = mean_estimate(control).mean;
  const double mean_candidate = mean_estimate(candidate).mean;
  require(mean_control > 0, "recovery_ratio", "mean of control", mean_control, "more than 0");
  require(mean_candidate > 0, "recovery_ratio", "mean of candidate", mean_candidate, "more than 0");
  std::vector<double> linear(control.size());
  for (size_t i = 0; i < linear.size(); ++i) {
    linear[i] = candidate[i] / mean_candidate - control[i] / mean_control;
  }
  const ClusteredError error = error_of(linear, cluster_ids, mean_estimate(linear).se);
  return {mean_candidate / mean_control, error.cr1, static_cast<double>(error.clusters - 1)};
}

}  // namespace kv
