#include "report/compare_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decide/verdict_json.h"
#include "report/json_values.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/run_facts_text.h"
#include "report/text_table.h"
#include "report/verdict_report.h"
#include "report/verdict_words.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kCaveat =
    "Nothing is accepted here: the files do not say who looked at these scores before, or what was "
    "chosen by them.";

std::string mean_text(const ArmMean& mean) {
  return fmt::format("{} [{}, {}]", fixed(100 * mean.mean, 1), fixed(100 * mean.interval.lo, 1),
                     fixed(100 * mean.interval.hi, 1));
}

std::string set_text(const char* what, const ScoreSet& set) {
  return fmt::format("{}: {}, {} of {} on {}, n {}", what, set.arm, set.metric, set.source,
                     set.block, grouped(static_cast<int64_t>(set.scores.size())));
}

/// Buckets, overall and, where the files know of it, validity.
std::vector<ComparisonRow> shown_rows(const ScoreComparison& comparison) {
  std::vector<ComparisonRow> rows = rows_of(comparison.table);
  if (!comparison.has_validity) rows.pop_back();
  return rows;
}

std::string table_text(const ScoreComparison& comparison, const TextStyle& style) {
  const std::vector<TextColumn> columns = {{"bucket", false, true},
                                           {"n", true},
                                           {"control", true, true},
                                           {"candidate", true, true},
                                           {"difference", true, true},
                                           {"lost/won", true},
                                           {"deff", true},
                                           {"p loss", true},
                                           {"shows", false, true}};
  std::vector<std::vector<TextCell>> rows;
  size_t i = 0;
  for (const ComparisonRow& row : shown_rows(comparison)) {
    const bool has_mean = i < comparison.control.size();
    rows.push_back(
        {{printable(row.label)},
         {comparison.has_clusters ? fmt::format("{} ({})", grouped(row.n), grouped(row.documents))
                                  : grouped(row.n)},
         {has_mean ? mean_text(comparison.control[i]) : fixed(100 * row.mean_ctrl, 1)},
         {has_mean ? mean_text(comparison.candidate[i]) : fixed(100 * row.mean_cand, 1)},
         {points_interval(row.diff, row.interval)},
         {fmt::format("{}/{}", count_text(row.losses), count_text(row.gains))},
         {significant(row.deff, 3)},
         {significant(row.p_loss_holm, 2)},
         {verdict_words(row.verdict)}});
    ++i;
  }
  return text_table(columns, rows, style);
}

std::string shift_text(const ArmTable& table) {
  return fmt::format(
      "Shift: {} (Holm: overall p {}, growing with length p {}, sign of the buckets p {}; the "
      "buckets differ among themselves with p {}).",
      name(table.shift), significant(table.overall.p_loss_holm, 2),
      significant(table.p_trend_holm, 2), significant(table.p_sign_holm, 2),
      significant(table.p_heterogeneity, 2));
}

std::string repeat_text(const ArmTable& repeat) {
  const OverallRow& all = repeat.overall;
  return fmt::format(
      "The control against itself: {} of {} answers flip, {} points; that much differs without any "
      "change of the cache.",
      count_text(all.losses + all.gains), grouped(all.n), points_interval(all.diff, all.interval));
}

std::string recovery_text(const RecoveryResult& recovery) {
  const std::string ratio = fixed(100 * recovery.ratio, 1);
  if (!recovery.interval) {
    return fmt::format("Recovery {} %; no answer differs, so no interval can be had from them.",
                       ratio);
  }
  return fmt::format("Recovery {} % [{}, {}] ({}).", ratio, fixed(100 * recovery.interval->lo, 1),
                     fixed(100 * recovery.interval->hi, 1),
                     recovery.is_bootstrap ? "bootstrap" : "delta method");
}

OrderedJson set_json(const ScoreSet& set) {
  return {{"source", set.source},
          {"arm", set.arm},
          {"metric", set.metric},
          {"block", set.block},
          {"n", set.scores.size()}};
}

OrderedJson mean_json(const ArmMean& mean) {
  return {{"mean", json_number(mean.mean)},
          {"interval", {json_number(mean.interval.lo), json_number(mean.interval.hi)}},
          {"method", mean.is_binary ? "wilson" : "t"}};
}

OrderedJson means_of(const ScoreComparison& comparison) {
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < comparison.control.size(); ++i) {
    const bool is_bucket = i < comparison.table.buckets.size();
    out.push_back({{"bucket", is_bucket ? comparison.table.buckets[i].bucket : "overall"},
                   {"control", mean_json(comparison.control[i])},
                   {"candidate", mean_json(comparison.candidate[i])}});
  }
  return out;
}

OrderedJson recovery_json(const ScoreComparison& comparison) {
  if (!comparison.recovery) return nullptr;
  const RecoveryResult& recovery = *comparison.recovery;
  OrderedJson interval = nullptr;
  if (recovery.interval) {
    interval = {json_number(recovery.interval->lo), json_number(recovery.interval->hi)};
  }
  return {{"ratio", json_number(recovery.ratio)},
          {"interval", interval},
          {"method", recovery.is_bootstrap ? "bootstrap" : "delta"}};
}

}  // namespace

std::string scores_text(const ScoreComparison& comparison, const ScoreSet& control,
                        const ScoreSet& candidate, const TextStyle& style) {
  check_style(style);
  const ArmTable& table = comparison.table;
  std::string out = paragraph(printable(set_text("control", control)), style);
  out += paragraph(printable(set_text("candidate", candidate)), style);
  out += paragraph(
      fmt::format(
          "Points of 100, with 95 % intervals; n{}; deff: examples that count as one; p loss "
          "after Holm; margin {} points a bucket, {} overall.",
          comparison.has_clusters ? " (clusters)" : "",
          significant(100 * comparison.options.margin.bucket, 3),
          significant(100 * comparison.options.margin.overall, 3)),
      style);
  out += '\n' + table_text(comparison, style) + '\n';
  for (const BucketRow& row : table.buckets) {
    if (!row.note.empty()) out += paragraph(printable(row.bucket + ": " + row.note), style);
  }
  out += paragraph(printable(comparison_sentence(table, comparison.options)), style);
  out += paragraph(shift_text(table), style);
  if (comparison.recovery) {
    out += paragraph(recovery_text(*comparison.recovery), style);
  }
  if (comparison.auc_control) {
    out += paragraph(fmt::format("Area under the length curve: {} and {}.",
                                 fixed(100 * *comparison.auc_control, 2),
                                 fixed(100 * *comparison.auc_candidate, 2)),
                     style);
  }
  if (comparison.repeat) out += paragraph(repeat_text(*comparison.repeat), style);
  return out + paragraph(std::string(kCaveat), style);
}

std::string scores_json(const ScoreComparison& comparison, const ScoreSet& control,
                        const ScoreSet& candidate) {
  OrderedJson auc = nullptr;
  if (comparison.auc_control) {
    auc = {{"control", *comparison.auc_control}, {"candidate", *comparison.auc_candidate}};
  }
  return json_text({{"kind", "scores"},
                    {"accepts", false},
                    {"caveat", kCaveat},
                    {"control", set_json(control)},
                    {"candidate", set_json(candidate)},
                    {"margin",
                     {{"bucket", comparison.options.margin.bucket},
                      {"overall", comparison.options.margin.overall}}},
                    {"clustered", comparison.has_clusters},
                    {"sentence", comparison_sentence(comparison.table, comparison.options)},
                    {"table", table_json(comparison.table)},
                    {"means", means_of(comparison)},
                    {"recovery", recovery_json(comparison)},
                    {"auc", auc},
                    {"repeat",
                     comparison.repeat ? table_json(*comparison.repeat) : OrderedJson(nullptr)}}) +
         "\n";
}

}  // namespace kv
