#include "report/means_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/json_values.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/run_facts_text.h"
#include "report/text_table.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string sentence(const MeansComparison& comparison) {
  switch (comparison.shift) {
    case ShiftType::kLengthGrowing:
      return "The loss grows with length.";
    case ShiftType::kUniform:
      return "The candidate is lower in more buckets than chance allows.";
    default:
      return "No shift shows in these means; that is no evidence that there is none.";
  }
}

std::string trend_text(const MeansComparison& comparison) {
  const PermutationTest& trend = comparison.trend;
  return fmt::format("Trend over {}: {} of {} {} fall as steeply, p {}.",
                     comparison.has_lengths ? "log2 of the length" : "the order of the rows",
                     grouped(static_cast<int64_t>(trend.extreme)),
                     grouped(static_cast<int64_t>(trend.total)),
                     comparison.is_exact ? "orderings" : "orderings drawn with a fixed seed",
                     significant(trend.p, 4));
}

}  // namespace

std::string means_text(const BucketMeans& means, const MeansComparison& comparison,
                       const std::string& source, const TextStyle& style) {
  check_style(style);
  std::vector<std::vector<TextCell>> rows;
  for (size_t b = 0; b < means.buckets.size(); ++b) {
    rows.push_back({{printable(means.buckets[b])},
                    {fixed(100 * means.control[b], 2)},
                    {fixed(100 * means.candidate[b], 2)},
                    {signed_fixed(100 * comparison.differences[b], 2)}});
  }
  std::string out =
      paragraph(fmt::format("{}: means in points (of 100), read as {}; {}.", printable(source),
                            means.was_percent ? "percent" : "shares", kMeansCaveat),
                style);
  out += '\n';
  out += text_table({{"bucket", false}, {"control"}, {"candidate"}, {"difference"}}, rows, style);
  out += '\n';
  out +=
      paragraph(fmt::format("Shift: {}. {}", name(comparison.shift), sentence(comparison)), style);
  out += paragraph(fmt::format("Sign: {} of {} buckets with a difference are lower, p {} (exact).",
                               comparison.sign.negative, comparison.sign.nonzero,
                               significant(comparison.sign.p_loss, 4)),
                   style);
  out += paragraph(trend_text(comparison), style);
  if (comparison.auc_control) {
    out += paragraph(fmt::format("Area under the length curve: {} and {}; a summary, it can hide a "
                                 "loss in one bucket.",
                                 fixed(100 * *comparison.auc_control, 2),
                                 fixed(100 * *comparison.auc_candidate, 2)),
                     style);
  }
  out += paragraph("Nothing is accepted on a table of means.", style);
  return out;
}

std::string means_json(const BucketMeans& means, const MeansComparison& comparison,
                       const std::string& source) {
  OrderedJson rows = OrderedJson::array();
  for (size_t b = 0; b < means.buckets.size(); ++b) {
    rows.push_back({{"bucket", means.buckets[b]},
                    {"control", means.control[b]},
                    {"candidate", means.candidate[b]},
                    {"difference", comparison.differences[b]}});
  }
  OrderedJson auc = nullptr;
  if (comparison.auc_control) {
    auc = {{"control", *comparison.auc_control}, {"candidate", *comparison.auc_candidate}};
  }
  return json_text({{"kind", "means"},
                    {"source", source},
                    {"caveat", kMeansCaveat},
                    {"accepts", false},
                    {"unit", means.was_percent ? "percent" : "share"},
                    {"buckets", rows},
                    {"sign",
                     {{"negative", comparison.sign.negative},
                      {"nonzero", comparison.sign.nonzero},
                      {"p_loss", comparison.sign.p_loss}}},
                    {"trend",
                     {{"extreme", comparison.trend.extreme},
                      {"orderings", comparison.trend.total},
                      {"is_exact", comparison.is_exact},
                      {"over", comparison.has_lengths ? "log2_length" : "order"},
                      {"p_loss", comparison.trend.p}}},
                    {"shift", name(comparison.shift)},
                    {"auc", auc}}) +
         "\n";
}

}  // namespace kv
