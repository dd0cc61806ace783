#include <fmt/core.h>

#include "checkpoint/checkpoint.h"
#include "cli/session.h"
#include "engine/arm.h"
#include "kvscale/error.h"
#include "report/plan_report.h"

namespace kv::cli {
namespace {

PlanInput input_from(const PlanArgs& args) {
  PlanInput input;
  input.block_size = args.block_size;
  input.context = args.context;
  input.budget_bytes =
      static_cast<int64_t>(args.budget_gib * static_cast<double>(int64_t{1} << 30));
  input.bf16_layers.assign(args.bf16_layers.begin(), args.bf16_layers.end());
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
  const auto checkpoint = Checkpoint::open(model_path(args.model));
  const ModelSpec& spec = checkpoint->spec();
  input.model = args.model;
  input.layers.assign(static_cast<size_t>(spec.num_layers),
                      LayerGeometry{spec.num_kv_heads, spec.head_dim, 0});
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
