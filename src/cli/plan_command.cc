#include <fmt/core.h>

#include <limits>

#include "checkpoint/checkpoint.h"
#include "cli/session.h"
#include "engine/arm.h"
#include "kvscale/error.h"
#include "model/model.h"
#include "report/plan_report.h"

namespace kv::cli {
namespace {

constexpr double kLargestBudgetGib = 1 << 30;  // an exbibyte; more would not fit 63 bits

PlanInput input_from(const PlanArgs& args) {
  PlanInput input;
  input.block_size = args.block_size;
  input.context = args.context;
  if (args.budget_gib > kLargestBudgetGib) {
    throw ValueError(fmt::format("plan: --budget: expected at most {} GiB, found {}",
                                 kLargestBudgetGib, args.budget_gib));
  }
  input.budget_bytes =
      static_cast<int64_t>(args.budget_gib * static_cast<double>(int64_t{1} << 30));
  for (const int64_t layer : args.bf16_layers) {
    if (layer < 0 || layer > std::numeric_limits<int>::max())
      throw ValueError(fmt::format("plan: --bf16-layers: expected layers from 0, found {}", layer));
    input.bf16_layers.push_back(static_cast<int>(layer));
  }
  if (args.model.empty()) {
    if (args.layers == 0 || args.kv_heads == 0 || args.head_dim == 0 || args.context == 0) {
      throw ValueError(
          "plan: expected MODEL, or all of --layers, --kv-heads, --head-dim and --context");
    }
    input.model = "geometry given";
    input.layers.assign(static_cast<size_t>(args.layers),
                        LayerGeometry{args.kv_heads, args.head_dim, 0});
    return input;
  }
  if (args.layers != 0 || args.kv_heads != 0 || args.head_dim != 0)
    throw ValueError("plan: expected MODEL or --layers, --kv-heads and --head-dim, found both");
  const auto checkpoint = Checkpoint::open(model_path(args.model));
  const ModelSpec& spec = checkpoint->spec();
  input.model = args.model;
  input.layers = layer_geometry(spec);
  if (input.context == 0) input.context = spec.max_positions;
  return input;
}

}  // namespace

int run_plan(const PlanArgs& args) {
  const PlanInput input = input_from(args);
  fmt::print("{}\n", args.json ? plan_json(input) : plan_text(input, terminal_style()));
  return kExitAccept;
}

}  // namespace kv::cli
