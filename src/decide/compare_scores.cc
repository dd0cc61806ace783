#include "decide/compare_scores.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "decide/evidence.h"
#include "decide/quality.h"
#include "decide/score_pairs.h"
#include "stats/bootstrap.h"
#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/trend.h"

namespace kv {
namespace {

constexpr double kConfidence = 0.95;
constexpr uint64_t kBootstrapSeed = 20260;
// Below it the percentile bootstrap is not trusted (method 4.5).
constexpr int64_t kLeastBootstrapUnits = 100;

/// All buckets one after the other; clusters of different buckets stay different.
PairedBucket joined(const std::vector<PairedBucket>& buckets) {
  PairedBucket out;
  int64_t before = 0;
  for (const PairedBucket& one : buckets) {
    out.reference.insert(out.reference.end(), one.reference.begin(), one.reference.end());
    out.candidate.insert(out.candidate.end(), one.candidate.begin(), one.candidate.end());
    for (const int64_t document : one.document) out.document.push_back(before + document);
    before += one.documents;
  }
  out.documents = before;
  return out;
}

ArmMean arm_mean(const std::vector<double>& scores, const std::vector<int64_t>& clusters) {
  ArmMean out;
  const MeanEstimate estimate = mean_estimate(scores);
  const double n = static_cast<double>(scores.size());
  double se = estimate.se, df = n - 1;
  if (!clusters.empty()) {
    const ClusteredError error = clustered_error(scores, clusters);
    se = error.cr1;
    df = static_cast<double>(error.clusters) - 1;
  }
  out.mean = estimate.mean;
  out.is_binary = std::ranges::all_of(scores, [](double s) { return s == 0 || s == 1; });
  if (out.is_binary) {
    const double deff = design_effect(estimate.se, se);
    out.interval = wilson_interval(estimate.mean * n / deff, n / deff, critical_z(kConfidence));
  } else {
    out.interval = symmetric_interval(estimate.mean, se, critical_t(kConfidence, df));
  }
  return out;
}

/// Sums of a cluster's scores, cluster after cluster; every example is one where there are none.
std::vector<double> unit_sums(const std::vector<double>& scores, const PairedBucket& all) {
  if (all.document.empty()) return scores;
  std::vector<double> out(static_cast<size_t>(all.documents));
  for (size_t i = 0; i < scores.size(); ++i) {
    out[static_cast<size_t>(all.document[i])] += scores[i];
  }
  return out;
}

std::optional<RecoveryResult> recovery_of(const std::vector<PairedBucket>& buckets,
                                          const PairedBucket& all) {
  const auto is_zero = [](double score) { return score == 0; };
  if (std::ranges::all_of(all.reference, is_zero) || std::ranges::all_of(all.candidate, is_zero)) {
    return std::nullopt;
  }
  const Recovery recovery = recovery_ratio(all.reference, all.candidate, all.document);
  RecoveryResult out{recovery.ratio, std::nullopt, true};
  std::vector<size_t> strata;
  for (const PairedBucket& bucket : buckets) {
    strata.push_back(static_cast<size_t>(bucket.documents));
    out.is_bootstrap &= bucket.documents >= kLeastBootstrapUnits;
  }
  if (all.reference == all.candidate) return out;
  if (!out.is_bootstrap) {
    out.interval = recovery.interval(critical_t(kConfidence, recovery.df));
    return out;
  }
  BootstrapPlan plan;
  plan.seed = kBootstrapSeed;
  const std::vector<double> ratios =
      bootstrap_ratio(unit_sums(all.candidate, all), unit_sums(all.reference, all), strata, plan);
  out.interval = summarize_bootstrap(ratios, kConfidence).interval;
  return out;
}

void add_auc(ScoreComparison& out) {
  std::vector<double> lengths, control, candidate;
  std::vector<BucketRow> rows = out.table.buckets;
  std::ranges::sort(rows, {}, &BucketRow::mean_prompt_tokens);
  for (const BucketRow& row : rows) {
    if (row.mean_prompt_tokens <= 0) return;
    if (!lengths.empty() && row.mean_prompt_tokens <= lengths.back()) return;
    lengths.push_back(row.mean_prompt_tokens);
    control.push_back(row.mean_ctrl);
    candidate.push_back(row.mean_cand);
  }
  if (lengths.size() < 2) return;
  out.auc_control = length_curve_auc(lengths, control);
  out.auc_candidate = length_curve_auc(lengths, candidate);
}

double flip_rate(const ArmTable& table) {
  return (table.overall.losses + table.overall.gains) / static_cast<double>(table.overall.n);
}

}  // namespace

ScoreComparison compare_scores(const DecideOptions& options, const ScoreSet& control,
                               const ScoreSet& candidate, const ScoreSet* repeat) {
  ScoreComparison out;
  out.options = options;
  out.has_clusters = control.has_clusters && candidate.has_clusters;
  out.has_validity = control.has_validity && candidate.has_validity;
  const Look look = plan_looks({1}, options.alpha_accept, options.alpha_shift).front();
  double flips = 0;
  if (repeat != nullptr) {
    out.repeat = compare(options, {control.block, repeat->arm, control.arm},
                         pair_scores(control, *repeat), look, 0)
                     .table;
    flips = flip_rate(*out.repeat);
  }
  const std::vector<PairedBucket> buckets = pair_scores(control, candidate);
  out.table =
      compare(options, {control.block, candidate.arm, control.arm}, buckets, look, flips).table;
  for (const PairedBucket& bucket : buckets) {
    out.control.push_back(arm_mean(bucket.reference, bucket.document));
    out.candidate.push_back(arm_mean(bucket.candidate, bucket.document));
  }
  const PairedBucket all = joined(buckets);
  out.control.push_back(arm_mean(all.reference, all.document));
  out.candidate.push_back(arm_mean(all.candidate, all.document));
  // Buckets of unequal sizes are weighted equally by the test; so are the means beside it.
  const auto shift_to = [](ArmMean& mean, double value) {
    mean.interval = {mean.interval.lo + value - mean.mean, mean.interval.hi + value - mean.mean};
    mean.mean = value;
  };
  shift_to(out.control.back(), out.table.overall.mean_ctrl);
  shift_to(out.candidate.back(), out.table.overall.mean_cand);
  out.recovery = recovery_of(buckets, all);
  add_auc(out);
  return out;
}

}  // namespace kv
