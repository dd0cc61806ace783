#include "report/arm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evaluate/predicted_kld.h"
#include "kvscale/error.h"
#include "report/numbers.h"
#include "report/text_table.h"

namespace kv {

std::string ArmRow::base() const {
  ArmSpec bare = spec;
  bare.bf16.clear();
  return bare.text();
}

std::string ArmRow::bf16_layers() const {
  if (is_control()) return "all";
  if (spec.bf16.empty()) return "-";
  std::vector<std::string> parts;
  for (const Bf16Side& side : spec.bf16) {
    parts.push_back(fmt::format("{}{}", side.layer, side.k && side.v ? "" : side.k ? "k" : "v"));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string mean_with_error(double mean, double se, int decimals, bool unicode) {
  // One document has no spread between documents, so no error that could be trusted.
  if (!std::isfinite(se) || se <= 0) return fixed(mean, decimals);
  return fmt::format("{} {} {}", fixed(mean, decimals), unicode ? "±" : "+-", fixed(se, decimals));
}

std::string ArmRow::kld_text(bool unicode) const {
  if (is_control()) return "";
  const std::string mean = mean_with_error(record->kld, record->kld_se, 4, unicode);
  if (record->non_finite == 0) return mean;
  return fmt::format("{}, {} tokens not finite", mean, grouped(record->non_finite));
}

std::string kld_head(const std::vector<ArmRow>& arms, bool unicode) {
  const bool has_errors = std::ranges::any_of(arms, [](const ArmRow& arm) {
    return !arm.is_control() && std::isfinite(arm.record->kld_se) && arm.record->kld_se > 0;
  });
  return !has_errors ? "KLD" : unicode ? "KLD ± se" : "KLD +- se";
}

std::string ArmRow::predicted_text() const {
  return predicted_kld && !is_control() ? significant(*predicted_kld, 2) : "";
}

void add_predictions(std::span<const RangeRecord> ranges, std::vector<ArmRow>& arms) {
  const auto control = std::ranges::find_if(arms, &ArmRow::is_control);
  if (control == arms.end()) return;
  for (ArmRow& arm : arms) {
    const double kld = predicted_kld(ranges, control->record->nll, arm.spec);
    if (std::isfinite(kld)) arm.predicted_kld = kld;
  }
}

bool has_predictions(const std::vector<ArmRow>& arms) {
  return std::ranges::any_of(
      arms, [](const ArmRow& arm) { return !arm.is_control() && arm.predicted_kld.has_value(); });
}

std::vector<ArmRow> make_arm_rows(std::span<const ArmRecord> arms,
                                  std::span<const CapacityRecord> capacities) {
  const auto control =
      std::find_if(arms.begin(), arms.end(), [](const ArmRecord& r) { return r.arm == "bf16"; });
  if (control == arms.end()) {
    throw ValueError(fmt::format(
        "report: expected the control \"bf16\" among the arms, found {} others", arms.size()));
  }
  std::vector<ArmRow> rows;
  for (const ArmRecord& record : arms) {
    ArmRow row{&record, ArmSpec::parse(record.arm), record.nll - control->nll, {}, {}};
    const auto capacity =
        std::find_if(capacities.begin(), capacities.end(),
                     [&](const CapacityRecord& r) { return r.arm == record.arm; });
    if (capacity != capacities.end()) row.gain = capacity->gain();
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string arm_text(const std::vector<ArmRow>& arms, const TextStyle& style) {
  // A narrow terminal has no room for it; the page and the JSON have it.
  const bool is_predicted = has_predictions(arms) && style.width >= 90;
  std::string out = paragraph(
      fmt::format("Quality per token over the same text, in nats; {}same top: share of tokens with "
                  "the same most likely successor; capacity: tokens in the same memory, relative "
                  "to BF16.",
                  is_predicted ? "predicted: KLD by the pass of the control alone; " : ""),
      style);
  std::vector<TextColumn> columns = {
      {"arm", false, true}, {"BF16 layers", false, true},
      {"tokens"},           {"NLL"},
      {"to BF16"},          {kld_head(arms, style.unicode), true, true}};
  if (is_predicted) columns.push_back({"predicted"});
  columns.insert(columns.end(), {{"same top"}, {"capacity"}});
  std::vector<std::vector<TextCell>> rows;
  for (const ArmRow& arm : arms) {
    std::vector<TextCell> cells = {{arm.base()},
                                   {arm.bf16_layers()},
                                   {grouped(arm.record->tokens)},
                                   {fixed(arm.record->nll, 3)},
                                   {arm.is_control() ? "" : signed_fixed(arm.delta_nll, 3)},
                                   {arm.kld_text(style.unicode)}};
    if (is_predicted) cells.push_back({arm.predicted_text()});
    cells.push_back({arm.is_control() ? "" : percent(arm.record->same_top)});
    cells.push_back({arm.gain ? fixed(*arm.gain, 3) + "x" : ""});
    rows.push_back(std::move(cells));
  }
  return out + text_table(columns, rows, style);
}

}  // namespace kv
