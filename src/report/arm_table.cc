#include "report/arm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
  return is_control() ? "" : mean_with_error(record->kld, record->kld_se, 4, unicode);
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
    ArmRow row{&record, ArmSpec::parse(record.arm), record.nll - control->nll, std::nullopt};
    const auto capacity =
        std::find_if(capacities.begin(), capacities.end(),
                     [&](const CapacityRecord& r) { return r.arm == record.arm; });
    if (capacity != capacities.end()) row.gain = capacity->gain();
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string arm_text(const std::vector<ArmRow>& arms, const TextStyle& style) {
  std::string out = paragraph(
      "Quality per token over the same text, in nats; same top: share of tokens with the same most "
      "likely successor; capacity: tokens in the same memory, relative to BF16.",
      style);
  const std::vector<TextColumn> columns = {
      {"arm", false, true}, {"BF16 layers", false, true},
      {"tokens"},           {"NLL"},
      {"to BF16"},          {style.unicode ? "KLD ± se" : "KLD +- se", true, true},
      {"same top"},         {"capacity"}};
  std::vector<std::vector<TextCell>> rows;
  for (const ArmRow& arm : arms) {
    rows.push_back({{arm.base()},
                    {arm.bf16_layers()},
                    {grouped(arm.record->tokens)},
                    {fixed(arm.record->nll, 3)},
                    {arm.is_control() ? "" : signed_fixed(arm.delta_nll, 3)},
                    {arm.kld_text(style.unicode)},
                    {arm.is_control() ? "" : percent(arm.record->same_top)},
                    {arm.gain ? fixed(*arm.gain, 3) + "x" : ""}});
  }
  return out + text_table(columns, rows, style);
}

}  // namespace kv
