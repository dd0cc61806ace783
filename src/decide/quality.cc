#include "decide/quality.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "decide/evidence.h"
#include "decide/sample_plan.h"
#include "kvscale/error.h"
#include "stats/distributions.h"
#include "stats/holm.h"
#include "stats/mcnemar.h"
#include "stats/moments.h"
#include "stats/sample_size.h"
#include "stats/sequential.h"

namespace kv {
namespace {

double p_of_loss(const PairedSummary& summary) {
  if (summary.losses + summary.gains == 0) return 1;
  if (!summary.is_binary) return bucket_shift(summary).p_below(0);
  return mcnemar(static_cast<double>(summary.losses) / summary.deff,
                 static_cast<double>(summary.gains) / summary.deff)
      .midp_loss;
}

std::string limits_note(const DecideOptions& options, const BucketRow& row) {
  if (row.documents < options.min_documents) {
    return fmt::format("TOO_FEW_CLUSTERS: {} documents, {} needed", row.documents,
                       options.min_documents);
  }
  if (options.max_questions_per_document > 0 &&
      row.max_questions > options.max_questions_per_document) {
    return fmt::format("TOO_MANY_QUESTIONS: {} on one document, at most {} allowed",
                       row.max_questions, options.max_questions_per_document);
  }
  return "";
}

/// "E1/fp8_scale1", or with the reference when that is not the control.
std::string table_id(const ComparisonNames& names) {
  const bool against_control = names.reference == kControlArm;
  return fmt::format("{}/{}{}{}", names.block, names.arm, against_control ? "" : "-",
                     against_control ? "" : names.reference);
}

bool has_both_halves(const PairedBucket& pairs) {
  return std::ranges::find(pairs.half, 1) != pairs.half.end() &&
         std::ranges::find(pairs.half, 2) != pairs.half.end();
}

/// Mean differences of the two replicate halves; NaN for a half without examples.
std::array<double, 2> half_diffs(const PairedBucket& pairs) {
  std::array<double, 2> sums = {}, counts = {};
  for (size_t i = 0; i < pairs.half.size(); ++i) {
    const size_t half = pairs.half[i] == 1 ? 0 : 1;
    sums[half] += pairs.candidate[i] - pairs.reference[i];
    ++counts[half];
  }
  return {sums[0] / counts[0], sums[1] / counts[1]};
}

/// What may be lost: `margin` points or, with a recovery, that much of the control's mean. Of a
/// reference that is always wrong there is nothing to lose.
double margin_of(const DecideOptions& options, double margin, double mean_ctrl) {
  constexpr double kNothing = 1e-9;
  if (options.margin.recovery == 0) return margin;
  return std::max(kNothing, (1 - options.margin.recovery) * mean_ctrl);
}

double share_of(const std::vector<double>& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

BucketRow bucket_row(const DecideOptions& options, const ComparisonNames& names,
                     const PairedBucket& pairs, const PairedSummary& summary, const Look& look) {
  BucketRow row;
  row.id = fmt::format("{}/{}", table_id(names), pairs.bucket);
  row.bucket = pairs.bucket;
  row.n = pairs.n();
  row.documents = pairs.documents;
  row.max_questions = pairs.max_questions;
  row.mean_prompt_tokens = pairs.mean_prompt_tokens;
  row.is_binary = summary.is_binary;
  row.losses = static_cast<double>(summary.losses);
  row.gains = static_cast<double>(summary.gains);
  row.deff = summary.deff;
  row.mean_ctrl = summary.mean_control;
  row.mean_cand = summary.mean_candidate;
  row.diff = summary.diff;
  row.half_diffs = half_diffs(pairs);
  row.se_iid = summary.se_iid;
  row.se_cr1 = summary.se_cr1;
  const Shift shift = bucket_shift(summary);
  row.interval = shift.interval(look.bound);
  row.margin = margin_of(options, options.margin.bucket, row.mean_ctrl);
  const MarginTest margins = margin_test(shift, row.margin);
  row.p_ni = margins.p_ni;
  row.p_equiv_upper = margins.p_equiv_upper;
  row.validity_ctrl = share_of(pairs.reference_valid);
  row.validity_cand = share_of(pairs.candidate_valid);
  row.p_loss = p_of_loss(summary);
  row.note = limits_note(options, row);
  if (row.note.empty()) row.verdict = bucket_verdict(row.interval, row.margin);
  return row;
}

/// Pooled counts when that is the equally weighted mean of binary scores, else the weighted mean.
Shift overall_shift(std::span<const PairedSummary> summaries, std::span<const double> shares) {
  const auto can_pool = [&](const PairedSummary& s) {
    return s.is_binary && s.n == summaries[0].n;
  };
  const bool equal_shares = std::ranges::all_of(shares, [&](double w) { return w == shares[0]; });
  if (equal_shares && std::ranges::all_of(summaries, can_pool)) return pooled_shift(summaries);
  return weighted_shift(summaries, shares);
}

double weighted_mean(std::span<const PairedSummary> summaries, std::span<const double> shares,
                     double PairedSummary::*field) {
  double sum = 0;
  for (size_t i = 0; i < summaries.size(); ++i) sum += shares[i] * summaries[i].*field;
  return sum / std::accumulate(shares.begin(), shares.end(), 0.0);
}

double weighted_half(const std::vector<BucketRow>& rows, std::span<const double> shares,
                     size_t half) {
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) sum += shares[i] * rows[i].half_diffs[half];
  return sum / std::accumulate(shares.begin(), shares.end(), 0.0);
}

double p_of_overall_loss(const Shift& shift, double flips) {
  const PairedCounts& counts = shift.counts();
  if (flips == 0) return 1;
  return counts.n > 0 ? mcnemar(counts.losses, counts.gains).midp_loss : shift.p_below(0);
}

OverallRow overall_row(const std::string& id, std::span<const PairedSummary> summaries,
                       std::span<const double> shares, double margin, const Look& look) {
  OverallRow row;
  row.id = id;
  row.margin = margin;
  double n_effective = 0;
  for (const PairedSummary& summary : summaries) {
    row.n += static_cast<int64_t>(summary.n);
    row.documents += static_cast<int64_t>(summary.clusters);
    row.losses += static_cast<double>(summary.losses);
    row.gains += static_cast<double>(summary.gains);
    n_effective += static_cast<double>(summary.n) / summary.deff;
  }
  row.deff = static_cast<double>(row.n) / n_effective;
  row.mean_ctrl = weighted_mean(summaries, shares, &PairedSummary::mean_control);
  row.mean_cand = weighted_mean(summaries, shares, &PairedSummary::mean_candidate);
  const Shift shift = overall_shift(summaries, shares);
  row.diff = shift.estimate();
  row.interval = shift.interval(look.bound);
  row.p_ni = margin_test(shift, margin).p_ni;
  row.p_loss = p_of_overall_loss(shift, row.losses + row.gains);
  row.verdict = bucket_verdict(row.interval, margin);
  return row;
}

/// Variance of a bucket's difference if there is no shift: for the trend and heterogeneity.
double null_variance(const PairedSummary& summary) {
  const double n = static_cast<double>(summary.n) / summary.deff;
  const double flips = static_cast<double>(summary.losses + summary.gains) / summary.deff;
  if (summary.is_binary) return std::max(flips, 0.5) / (n * n);
  return std::max(summary.se_cr1 * summary.se_cr1, 0.5 / (n * n));
}

struct Curve {
  std::vector<double> x, y, variances;
  bool has_trend() const { return x.size() >= 2 && std::ranges::max(x) > std::ranges::min(x); }
};

Curve length_curve(const Comparison& comparison) {
  Curve curve;
  for (size_t i = 0; i < comparison.scores.size(); ++i) {
    curve.x.push_back(std::log2(std::max(1.0, comparison.table.buckets[i].mean_prompt_tokens)));
    curve.y.push_back(comparison.scores[i].diff);
    curve.variances.push_back(null_variance(comparison.scores[i]));
  }
  return curve;
}

/// Which statistics of the family have the sign of a loss in both replicate halves. Without halves
/// nothing is known of it, and nothing is held against them.
struct Repeats {
  bool overall = true, trend = true, sign = true;
  std::vector<bool> buckets;
};

bool is_loss_in_both(const std::array<double, 2>& diffs) { return diffs[0] < 0 && diffs[1] < 0; }

Repeats repeats_in_halves(const ArmTable& table, const Curve& curve) {
  Repeats out;
  for (const BucketRow& row : table.buckets) out.buckets.push_back(is_loss_in_both(row.half_diffs));
  out.overall = is_loss_in_both(table.overall.half_diffs);
  for (size_t half = 0; half < 2; ++half) {
    std::vector<double> diffs;
    for (const BucketRow& row : table.buckets) diffs.push_back(row.half_diffs[half]);
    const auto negative = std::ranges::count_if(diffs, [](double d) { return d < 0; });
    const auto positive = std::ranges::count_if(diffs, [](double d) { return d > 0; });
    out.sign &= negative > positive;
    out.trend &= curve.has_trend() && weighted_trend(curve.x, diffs, curve.variances).slope < 0;
  }
  return out;
}

ShiftType shift_type(const ArmTable& table, const Repeats& repeats) {
  const auto is_rejected = [&](double p) { return p <= table.look.shift_level; };
  if (is_rejected(table.p_trend_holm) && repeats.trend) return ShiftType::kLengthGrowing;
  const bool is_general = (is_rejected(table.overall.p_loss_holm) && repeats.overall) ||
                          (is_rejected(table.p_sign_holm) && repeats.sign);
  if (is_general && table.p_heterogeneity >= thresholds::kHeterogeneityP)
    return ShiftType::kUniform;
  bool is_local = false;
  for (size_t i = 0; i < table.buckets.size(); ++i) {
    is_local |= is_rejected(table.buckets[i].p_loss_holm) && repeats.buckets[i];
  }
  return is_general || is_local ? ShiftType::kLocalised : ShiftType::kNone;
}

/// The family of 4.9: overall, trend, sign and every bucket, adjusted together.
void test_for_shift(Comparison& comparison, bool has_halves) {
  ArmTable& table = comparison.table;
  const Curve curve = length_curve(comparison);
  if (curve.has_trend()) {
    const WeightedTrend trend = weighted_trend(curve.x, curve.y, curve.variances);
    const Heterogeneity spread = heterogeneity(curve.y, curve.variances);
    table.p_trend = trend.p_loss;
    table.p_heterogeneity = spread.q_p;
    table.curve.trend_slope = trend.slope;
    table.curve.q = spread.q;
  }
  const SignTest sign = sign_test(curve.y);
  table.p_sign = sign.p_loss;
  table.curve.negative_buckets = static_cast<int64_t>(sign.negative);
  table.curve.nonzero_buckets = static_cast<int64_t>(sign.nonzero);
  std::vector<double> p = {table.overall.p_loss, table.p_trend, table.p_sign};
  for (const BucketRow& row : table.buckets) p.push_back(row.p_loss);
  const std::vector<double> adjusted = holm_adjusted(p);
  table.overall.p_loss_holm = adjusted[0];
  table.p_trend_holm = adjusted[1];
  table.p_sign_holm = adjusted[2];
  for (size_t i = 0; i < table.buckets.size(); ++i) table.buckets[i].p_loss_holm = adjusted[3 + i];
  Repeats repeats;
  repeats.buckets.assign(table.buckets.size(), true);
  if (has_halves) repeats = repeats_in_halves(table, curve);
  table.shift = shift_type(table, repeats);
}

/// Areas under the curves of both means, where the lengths differ.
void add_areas(ArmTable& table) {
  std::vector<double> lengths, ctrl, cand;
  for (const BucketRow& row : table.buckets) {
    lengths.push_back(row.mean_prompt_tokens);
    ctrl.push_back(row.mean_ctrl);
    cand.push_back(row.mean_cand);
  }
  const bool rises = std::ranges::adjacent_find(lengths, std::greater_equal()) == lengths.end();
  const double none = std::numeric_limits<double>::quiet_NaN();
  const bool has_area = lengths.size() >= 2 && rises;
  table.curve.auc_ctrl = has_area ? length_curve_auc(lengths, ctrl) : none;
  table.curve.auc_cand = has_area ? length_curve_auc(lengths, cand) : none;
}

/// Recovery with its error: ln(cand / ctrl) moves by cand_i / mean_cand - ctrl_i / mean_ctrl with
/// every example, clustered by document within each bucket.
void add_recovery(ArmTable& table, const std::vector<PairedBucket>& buckets,
                  const std::vector<double>& shares) {
  LengthCurve& curve = table.curve;
  const double ctrl = table.overall.mean_ctrl, cand = table.overall.mean_cand;
  const double none = std::numeric_limits<double>::quiet_NaN();
  curve.recovery = ctrl > 0 ? cand / ctrl : none;
  curve.recovery_interval = {none, none};
  if (!(ctrl > 0 && cand > 0)) return;
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  double variance = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const PairedBucket& bucket = buckets[b];
    if (bucket.documents < 2) return;
    std::vector<double> moves;
    for (size_t i = 0; i < bucket.reference.size(); ++i) {
      moves.push_back(bucket.candidate[i] / cand - bucket.reference[i] / ctrl);
    }
    std::vector<int64_t> document = bucket.document;
    if (document.empty()) {  // each its own
      document.resize(moves.size());
      std::iota(document.begin(), document.end(), 0);
    }
    const double error = clustered_error(moves, document).cr1 * shares[b] / all;
    variance += error * error;
  }
  const double half = normal_quantile(0.975) * std::sqrt(variance);
  curve.recovery_interval = {curve.recovery * std::exp(-half), curve.recovery * std::exp(half)};
}

bool is_weak(const BucketRow& row, double alpha) {
  return row.verdict == BucketVerdict::kMaterialLoss ||
         row.verdict == BucketVerdict::kLossUnsized || row.p_loss_holm <= alpha;
}

/// Q_PASS and Q_MATERIAL of the method's 6.3.
void judge(ArmTable& table) {
  const auto passes = [](const auto& row) { return is_non_inferior(row.verdict); };
  table.is_pass =
      std::ranges::all_of(table.buckets, passes) && passes(table.overall) && passes(table.validity);
  table.is_material = std::ranges::any_of(table.buckets, [](const BucketRow& row) {
    return row.verdict == BucketVerdict::kMaterialLoss;
  });
  table.is_beyond_margin = table.overall.diff < -table.overall.margin ||
                           std::ranges::any_of(table.buckets, [](const BucketRow& row) {
                             return row.diff < -row.margin;
                           });
}

bool contains(const std::vector<std::string>& list, const std::string& bucket) {
  return std::ranges::find(list, bucket) != list.end();
}

/// Questions per bucket that decide `row` after `asked` did not: as many as decide if there is no
/// loss, or, if so many were asked, as many as decide if the loss is the one observed (n grows with
/// 1 / (margin - loss)^2), and never less than twice as many again.
template <class Row>
double still_required(const Row& row, int64_t asked) {
  if (is_non_inferior(row.verdict) || row.n_required > static_cast<double>(asked)) {
    return row.n_required;
  }
  const double left = row.margin + std::min(row.diff, 0.0);
  const double twice = 2 * static_cast<double>(asked);
  return left <= 0 ? twice : std::max(twice, row.n_required * std::pow(row.margin / left, 2));
}

}  // namespace

double traffic_share(const DecideOptions& options, const std::string& bucket) {
  if (options.traffic.empty()) return 1;
  const auto found = options.traffic.find(bucket);
  if (found != options.traffic.end()) return found->second;
  throw ValueError(fmt::format("decide: traffic: no share for bucket {}", bucket));
}

Comparison compare(const DecideOptions& options, const ComparisonNames& names,
                   const std::vector<PairedBucket>& buckets, const Look& look, double aa_flips) {
  Comparison out;
  ArmTable& table = out.table;
  table.block = names.block;
  table.arm = names.arm;
  table.reference = names.reference;
  table.look = look;
  std::vector<PairedSummary> validity;
  std::vector<double> shares;
  const double power = power_per_bucket(options.plan_power, static_cast<int>(buckets.size()));
  const SamplePlan plan{nominal_level(look.bound), power, aa_flips};
  for (const PairedBucket& bucket : buckets) {
    out.scores.push_back(summarize_scores(bucket));
    table.buckets.push_back(bucket_row(options, names, bucket, out.scores.back(), look));
    table.buckets.back().n_required =
        plan.questions(out.scores.back(), table.buckets.back().margin);
    validity.push_back(summarize_validity(bucket));
    shares.push_back(traffic_share(options, bucket.bucket));
  }
  const std::string id = table_id(names);
  const double overall_margin =
      margin_of(options, options.margin.overall,
                weighted_mean(out.scores, shares, &PairedSummary::mean_control));
  table.overall = overall_row(id + "/overall", out.scores, shares, overall_margin, look);
  table.overall.n_required = plan.questions_pooled(out.scores, overall_margin);
  table.validity = overall_row(id + "/validity", validity, shares, options.margin.validity, look);
  table.validity.n_required = plan.questions_pooled(validity, options.margin.validity);
  for (size_t half = 0; half < 2; ++half) {
    table.overall.half_diffs[half] = weighted_half(table.buckets, shares, half);
  }
  test_for_shift(out, std::ranges::all_of(buckets, has_both_halves));
  add_areas(table);
  add_recovery(table, buckets, shares);
  judge(table);
  return out;
}

std::vector<std::string> weak_buckets(const ArmTable& table) {
  std::vector<std::string> all, weak;
  for (const BucketRow& row : table.buckets) {
    all.push_back(row.bucket);
    if (is_weak(row, table.look.shift_level)) weak.push_back(row.bucket);
  }
  return table.shift == ShiftType::kUniform || weak.empty() ? all : weak;
}

bool has_no_regression(const ArmTable& table, const std::vector<std::string>& weak) {
  return std::ranges::all_of(table.buckets, [&](const BucketRow& row) {
    return contains(weak, row.bucket) || is_non_inferior(row.verdict);
  });
}

Improvement test_improvement(const DecideOptions& options, const Comparison& comparison,
                             const std::vector<std::string>& weak) {
  std::vector<PairedSummary> summaries;
  bool is_worse_somewhere = false;
  for (size_t i = 0; i < comparison.scores.size(); ++i) {
    if (!contains(weak, comparison.table.buckets[i].bucket)) continue;
    summaries.push_back(comparison.scores[i]);
    is_worse_somewhere |= comparison.scores[i].diff < 0;
  }
  const std::vector<double> shares(summaries.size(), 1.0);
  const Shift shift = overall_shift(summaries, shares);
  Improvement out;
  size_t flips = 0;
  for (const PairedSummary& summary : summaries) {
    out.n += static_cast<int64_t>(summary.n);
    flips += summary.losses + summary.gains;
  }
  out.diff = shift.estimate();
  const PairedCounts& counts = shift.counts();
  if (flips > 0) {
    // One-sided for a gain: gains and losses change places.
    out.p = counts.n > 0 ? mcnemar(counts.gains, counts.losses).midp_loss : shift.p_above(0);
  }
  const double level = comparison.table.look.shift_level;
  out.is_shown = out.p <= level && !is_worse_somewhere;
  const SamplePlan plan{level, options.plan_power, 0};
  const double gain = out.diff > 0 ? out.diff : options.margin.bucket;
  out.n_required = plan.questions_to_detect(summaries, gain);
  return out;
}

double questions_required(const ArmTable& table) {
  const auto buckets = static_cast<int64_t>(table.buckets.size());
  double n = std::max(still_required(table.overall, table.overall.n / buckets),
                      still_required(table.validity, table.validity.n / buckets));
  for (const BucketRow& row : table.buckets) n = std::max(n, still_required(row, row.n));
  return std::ceil(n);
}

}  // namespace kv
