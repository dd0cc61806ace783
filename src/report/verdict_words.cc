#include "report/verdict_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/numbers.h"
#include "report/verdict_report.h"

namespace kv {
namespace {

std::string plural_points(double share) {
  const std::string text = significant(100 * share, 3);
  return text + (text == "1" ? " point" : " points");
}

std::vector<std::string> buckets_with(const ArmTable& table,
                                      const std::vector<BucketVerdict>& verdicts) {
  std::vector<std::string> out;
  for (const BucketRow& row : table.buckets) {
    if (std::find(verdicts.begin(), verdicts.end(), row.verdict) != verdicts.end()) {
      out.push_back(fmt::format("{}: {} points, n {}", row.bucket,
                                points_interval(row.diff, row.interval), grouped(row.n)));
    }
  }
  return out;
}

std::string pass_sentence(const ArmTable& table, const DecideOptions& options) {
  int64_t least = table.overall.n;
  for (const BucketRow& row : table.buckets) least = std::min(least, row.n);
  if (options.margin.recovery > 0) {
    return fmt::format(
        "keeping at least {} of {}'s score in every bucket and overall (one-sided level {}, n >= "
        "{} "
        "a bucket)",
        percent(options.margin.recovery), table.reference == "bf16" ? "BF16" : table.reference,
        significant(table.look.alpha, 3), grouped(least));
  }
  return fmt::format(
      "not worse than {} by more than {} in any bucket and {} overall (one-sided level {}, n >= {} "
      "a bucket)",
      table.reference == "bf16" ? "BF16" : table.reference, plural_points(options.margin.bucket),
      plural_points(options.margin.overall), significant(table.look.alpha, 3), grouped(least));
}

}  // namespace

std::string outcome_words(const Verdict& verdict) {
  if (is_accepting(verdict.outcome)) return "Deploy " + verdict.layout;
  if (verdict.outcome == Outcome::kRejectQ8) return "Do not store the cache in q8_0";
  if (verdict.outcome == Outcome::kRejectFp8) return "Do not store the cache in FP8";
  return "No verdict yet";
}

std::string margin_words(const DecideOptions& options) {
  if (options.margin.recovery > 0) {
    return fmt::format(
        "at least {} of the control's score in every bucket and overall, {} for validity (margin "
        "{}; one-sided level {})",
        percent(options.margin.recovery), plural_points(options.margin.validity), options.preset,
        significant(options.alpha_accept, 3));
  }
  return fmt::format("{} a bucket, {} overall, {} for validity (margin {}; one-sided level {})",
                     plural_points(options.margin.bucket),
                     significant(100 * options.margin.overall, 3),
                     significant(100 * options.margin.validity, 3), options.preset,
                     significant(options.alpha_accept, 3));
}

std::string points(double share) { return signed_fixed(100 * share, 1); }

std::string points_interval(double diff, const Interval& interval) {
  return fmt::format("{} [{}, {}]", points(diff), points(interval.lo), points(interval.hi));
}

std::string count_text(double count) { return significant(count, 6); }

std::string verdict_words(BucketVerdict verdict) {
  switch (verdict) {
    case BucketVerdict::kEquivalent:
      return "equivalent";
    case BucketVerdict::kNonInferior:
      return "non-inferior";
    case BucketVerdict::kTolerableShift:
      return "tolerable shift";
    case BucketVerdict::kMaterialLoss:
      return "material loss";
    case BucketVerdict::kLossUnsized:
      return "loss, unsized";
    case BucketVerdict::kUnresolved:
      return "unresolved";
  }
  return "";
}

std::vector<ComparisonRow> rows_of(const ArmTable& table) {
  std::vector<ComparisonRow> out;
  for (const BucketRow& row : table.buckets) {
    out.push_back({row.id, row.bucket, row.n, row.documents, row.mean_ctrl, row.mean_cand, row.diff,
                   row.losses, row.gains, row.deff, row.margin, row.interval, row.verdict, row.p_ni,
                   row.p_loss_holm, row.note});
  }
  const auto add = [&](const OverallRow& row, const std::string& label) {
    out.push_back({row.id, label, row.n, row.documents, row.mean_ctrl, row.mean_cand, row.diff,
                   row.losses, row.gains, row.deff, row.margin, row.interval, row.verdict, row.p_ni,
                   row.p_loss_holm, ""});
  };
  add(table.overall, "overall");
  add(table.validity, "validity");
  return out;
}

std::string comparison_sentence(const ArmTable& table, const DecideOptions& options) {
  const std::string arm = table.arm + " is ";
  if (table.is_pass) return arm + pass_sentence(table, options) + ".";
  using enum BucketVerdict;
  if (table.is_material) {
    return fmt::format("{} loses more than {} ({}).", table.arm,
                       options.margin.recovery > 0 ? "its share of the control's score"
                                                   : plural_points(options.margin.bucket),
                       fmt::join(buckets_with(table, {kMaterialLoss}), "; "));
  }
  if (table.is_shift()) {
    return fmt::format("{} has a persistent loss, {}, that is not shown to lie inside the margin.",
                       table.arm, name(table.shift));
  }
  const std::vector<std::string> open = buckets_with(table, {kUnresolved, kLossUnsized});
  if (open.empty()) {
    return fmt::format(
        "{} is within the margin in every bucket, but not shown to be so overall or in validity.",
        table.arm);
  }
  return fmt::format("{} is neither shown to be within the margin nor outside it ({}).", table.arm,
                     fmt::join(open, "; "));
}

}  // namespace kv
