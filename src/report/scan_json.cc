#include <nlohmann/json.hpp>

#include "report/arm_table.h"
#include "report/eval_report.h"
#include "report/json_values.h"
#include "report/range_grid.h"
#include "report/scan_report.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson layer_json(const RangeRecord& record) {
  OrderedJson json = {{"layer", record.layer}, {"side", record.side}, {"layout", record.layout}};
  // Of K alone, V alone, and of both together on side "kv", which has nothing else.
  json["block_damage"] = json_number(record.block_damage);
  json["normed_damage"] = json_number(record.normed_damage);
  if (record.side != "kv") {
    json[record.side == "k" ? "score_noise" : "value_noise"] = {
        {"mean", json_number(record.noise_mean)},
        {"worst", json_number(record.noise_worst)},
        {"heads", json_numbers(record.noise_heads)}};
    json["sqnr_db"] = json_number(record.sqnr_db);
    json["centred_sqnr_db"] = json_number(record.centred_sqnr_db);
    json["clip_frac"] = json_number(record.clip_frac);
    json["zero_frac"] = json_number(record.zero_frac);
    json["amax"] = json_number(record.amax);
    if (record.side == "k") json["flag"] = name(flag_layer(record.noise_mean));
  }
  json["tokens"] = record.tokens;
  json["queries"] = record.queries;
  json["record"] = record.record_id;
  return json;
}

OrderedJson first_token_json(const FirstTokenRecord& record) {
  return {{"layer", record.layer},
          {"side", record.side},
          {"layout", record.layout},
          {"norm_ratio", json_number(record.norm_ratio)},
          {"sqnr_db", json_number(record.sqnr_db)},
          {"attention", json_number(record.attention)},
          {"noise", json_number(record.noise)},
          {"noise_share", json_number(record.noise_share)},
          {"sequences", record.sequences},
          {"queries", record.queries},
          {"record", record.record_id}};
}

/// The arms, each with what the pass of the control expected of it, and the pass's curve.
OrderedJson predicted_arms_json(const ScanReport& report) {
  OrderedJson json = arms_json(report.arms, report.logits, report.capacities);
  std::vector<ArmRow> arms = make_arm_rows(report.arms, report.capacities);
  add_predictions(report.ranges, arms);
  for (size_t i = 0; i < arms.size(); ++i) {
    if (arms[i].predicted_kld) json[i]["predicted_kld"] = *arms[i].predicted_kld;
  }
  return json;
}

OrderedJson totals_json(const RangeGrid& grid) {
  OrderedJson json = OrderedJson::object();
  for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
    json[grid.layouts[layout]] = json_number(total_block_damage(grid, layout));
  }
  return json;
}

}  // namespace

std::string scan_json(const ScanReport& report) {
  const RangeGrid grid = make_range_grid(report.ranges);
  OrderedJson layers = OrderedJson::array();
  for (const RangeRecord& record : report.ranges) layers.push_back(layer_json(record));
  OrderedJson first = OrderedJson::array();
  for (const FirstTokenRecord& record : report.first_tokens)
    first.push_back(first_token_json(record));
  return json_text({{"model", json_of(report.model)},
                    {"prompts", json_of(report.prompts)},
                    {"sentence", scan_sentence(report)},
                    {"arms", predicted_arms_json(report)},
                    {"bf16_layers", report.bf16_layers},
                    {"block_damage_squared", totals_json(grid)},
                    {"layers", std::move(layers)},
                    {"first_token", std::move(first)},
                    {"run", json_of(report.run)}});
}

}  // namespace kv
