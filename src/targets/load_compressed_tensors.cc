// vLLM's compressed-tensors path: F32 parameters that start at 1, one number or one per KV head.

#include <fmt/format.h>

#include <algorithm>

#include "targets/dry_run.h"

namespace kv {
namespace {

SideOutcome per_head(const ScaleSet& set, const StoredScale& scale, const TargetRow& row, int tp,
                     DryRun& run) {
  const auto heads = std::ssize(scale.values);
  if (heads != set.geometry.num_kv_heads) {
    run.starts = false;
    run.refusal = fmt::format("{}: expected {} values, found {}", scale.tensor,
                              set.geometry.num_kv_heads, heads);
    return {"default 1.0", {}};
  }
  if (row.per_head == PerHeadScales::kRefused) {
    run.starts = false;
    run.refusal = "per-head quant scales not supported";
    return {"default 1.0", {}};
  }
  SideOutcome out{row.per_head == PerHeadScales::kUsed ? "used" : "largest head", {}};
  for (const std::vector<int>& held : heads_of_ranks(set.geometry.num_kv_heads, tp)) {
    std::vector<float> values;
    for (const int head : held) values.push_back(scale.values[static_cast<size_t>(head)]);
    // Each rank takes the maximum of its own heads.
    if (row.per_head == PerHeadScales::kMaximum) values = {*std::ranges::max_element(values)};
    out.ranks.push_back(std::move(values));
  }
  return out;
}

SideOutcome load_side(const ScaleSet& set, int layer, ScaleSide side, const TargetRow& row, int tp,
                      DryRun& run) {
  const StoredScale* scale = set.find(layer, side);
  const auto ranks = static_cast<size_t>(tp);
  if (scale == nullptr) return {"default 1.0", std::vector<std::vector<float>>(ranks, {1.0f})};
  if (run.kind == DirectoryKind::kCtHead) return per_head(set, *scale, row, tp, run);
  if (scale->values.size() != 1) {
    run.starts = false;
    run.refusal = fmt::format("{}: expected 1 value for strategy \"tensor\", found {}",
                              scale->tensor, scale->values.size());
  }
  return {"used", std::vector<std::vector<float>>(ranks, {scale->values[0]})};
}

}  // namespace

LayerOutcome load_vllm_compressed_tensors(const ScaleSet& set, int layer, const TargetRow& row,
                                          int tp, DryRun& run) {
  LayerOutcome out{layer, layer, load_side(set, layer, ScaleSide::kK, row, tp, run), {}};
  out.v = load_side(set, layer, ScaleSide::kV, row, tp, run);
  return out;
}

}  // namespace kv
