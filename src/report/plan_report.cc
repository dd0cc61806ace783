#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/arm.h"
#include "kvscale/error.h"
#include "report/json_values.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

void check_input(const PlanInput& input) {
  if (input.layers.empty()) throw ValueError("plan: expected at least one layer, found none");
  if (input.context < 1 || input.block_size < 1 || input.budget_bytes < 0) {
    throw ValueError(fmt::format(
        "plan: expected a context and a block size of at least 1 and a budget of at least 0, found "
        "{}, {} and {}",
        input.context, input.block_size, input.budget_bytes));
  }
}

ArmSpec arm_of(ArmLayout layout) {
  ArmSpec arm;
  arm.layout = layout;
  return arm;
}

PlanRow plan_row(const PlanInput& input, const ArmSpec& arm, int64_t budget) {
  PlanRow row;
  row.name = arm.text();
  row.formats = arm.formats(static_cast<int64_t>(input.layers.size()));
  row.bytes = cache_bytes(input.layers, row.formats, input.context);
  row.bytes_per_token = block_bytes(input.layers, row.formats, 1);
  row.block_bytes = block_bytes(input.layers, row.formats, input.block_size);
  row.blocks = (input.context - 1) / input.block_size + 1;
  row.tokens_that_fit = tokens_that_fit(input.layers, row.formats, input.block_size,
                                        std::max<int64_t>(0, budget - input.state_bytes));
  return row;
}

}  // namespace

int64_t plan_budget(const PlanInput& input) {
  if (input.budget_bytes > 0) return input.budget_bytes;
  const auto formats = ArmSpec{}.formats(static_cast<int64_t>(input.layers.size()));
  return cache_bytes(input.layers, formats, input.context).total_bytes() + input.state_bytes;
}

double plan_gain(const PlanInput& input, const PlanRow& row, int64_t tokens) {
  const auto bytes = [&](const std::vector<LayerFormat>& formats) {
    return static_cast<double>(cache_bytes(input.layers, formats, tokens).total_bytes() +
                               input.state_bytes);
  };
  return bytes(ArmSpec{}.formats(static_cast<int64_t>(input.layers.size()))) / bytes(row.formats);
}

std::vector<int64_t> page_kinds(const PlanInput& input, const PlanRow& row) {
  std::set<int64_t> kinds;
  for (size_t i = 0; i < input.layers.size(); ++i)
    kinds.insert(block_bytes({input.layers[i]}, {row.formats[i]}, input.block_size));
  return {kinds.begin(), kinds.end()};
}

std::vector<PlanRow> plan_rows(const PlanInput& input) {
  check_input(input);
  const int64_t budget = plan_budget(input);
  std::vector<PlanRow> rows = {plan_row(input, ArmSpec{}, budget)};
  for (const ArmLayout layout : fp8_layouts(input.layers)) {
    rows.push_back(plan_row(input, arm_of(layout), budget));
  }
  if (input.bf16_layers.empty()) return rows;
  for (const ArmLayout layout : fp8_layouts(input.layers)) {
    const ArmSpec arm = arm_of(layout).with_bf16_layers(input.bf16_layers);
    rows.push_back(plan_row(input, arm, budget));
  }
  return rows;
}

std::string plan_json(const PlanInput& input) {
  OrderedJson layouts = OrderedJson::array();
  const std::vector<PlanRow> rows = plan_rows(input);
  for (const PlanRow& row : rows) {
    layouts.push_back({{"name", row.name},
                       {"code_bytes", row.bytes.code_bytes},
                       {"scale_bytes", row.bytes.scale_bytes},
                       {"static_scale_bytes", row.bytes.static_scale_bytes},
                       {"total_bytes", row.bytes.total_bytes()},
                       {"bytes_per_token", row.bytes_per_token},
                       {"block_bytes", row.block_bytes},
                       {"blocks", row.blocks},
                       {"allocated_bytes", row.allocated_bytes()},
                       {"tokens_that_fit", row.tokens_that_fit},
                       {"page_bytes", page_kinds(input, row)},
                       {"capacity_gain", json_number(plan_gain(input, row, input.context))}});
  }
  return json_text({{"model", input.model},
                    {"num_layers", input.layers.size()},
                    {"context", input.context},
                    {"block_size", input.block_size},
                    {"state_bytes", input.state_bytes},
                    {"budget_bytes", plan_budget(input)},
                    {"bf16_layers", input.bf16_layers},
                    {"layouts", std::move(layouts)}});
}

}  // namespace kv
