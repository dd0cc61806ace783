#include <fmt/core.h>

#include <limits>

#include "checkpoint/cached_layers.h"
#include "checkpoint/checkpoint.h"
#include "cli/session.h"
#include "engine/arm.h"
#include "kvscale/error.h"
#include "model/model.h"
#include "report/plan_report.h"

namespace kv::cli {
namespace {

constexpr double kLargestBudgetGib = 1 << 30;  // an exbibyte; more would not fit 63 bits

/// A model that does not run here: what its configuration says about the cache.
void add_cached_layers(const CachedLayers& cached, PlanInput& input) {
  for (const CachedLayer& layer : cached.layers)
    input.layers.push_back({layer.num_kv_heads, layer.head_dim, layer.window, layer.latent_values});
  input.state_layers = cached.state_layers;
  input.state_bytes = cached.state_bytes;
  if (input.context == 0) input.context = cached.max_positions;
  if (input.context == 0) {
    throw ValueError(fmt::format(
        "plan: {}: config.json has no max_position_embeddings: expected --context", input.model));
  }
}

PlanInput input_from(const PlanArgs& args) {
  PlanInput input;
  input.block_size = args.block_size;
  input.context = args.context;
  if (!(args.budget_gib <= kLargestBudgetGib)) {  // NaN is not either
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
  input.model = args.model;
  const auto path = model_path(args.model);
  if (std::filesystem::is_directory(path) && is_only_plannable(path)) {
    add_cached_layers(read_cached_layers(path), input);
    return input;
  }
  const auto checkpoint = Checkpoint::open(path);
  const ModelSpec& spec = checkpoint->spec();
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
