// Engines that hold one number for K and one for V.

#include <fmt/format.h>

#include <cmath>

#include "numeric/bf16.h"
#include "numeric/f16.h"
#include "targets/dry_run.h"

namespace kv {
namespace {

SideOutcome side(const std::string& how, float value, int tp) {
  return {how, std::vector<std::vector<float>>(static_cast<size_t>(tp), {value})};
}

LayerOutcome outcome(int layer, const SideOutcome& k, const SideOutcome& v) {
  return {layer, layer, k, v};
}

void refuse(DryRun& run, const StoredScale* scale, int layer, const std::string& why) {
  run.starts = false;
  run.refusal = scale == nullptr ? fmt::format("layer {}: {}", layer, why)
                                 : fmt::format("{}: {}", scale->tensor, why);
}

bool has_many(const StoredScale* scale) { return scale != nullptr && scale->values.size() > 1; }

// vLLM makes the parameter in torch's default dtype, which is the model's while it loads.
float in_model_dtype(const ScaleSet& set, float value) {
  if (set.geometry.dtype == "bfloat16") return bf16::decode(bf16::encode(value));
  if (set.geometry.dtype == "float16" || set.geometry.dtype == "half") {
    return f16::decode(f16::encode(value));
  }
  return value;
}

}  // namespace

LayerOutcome load_vllm_scalar(const ScaleSet& set, int layer, const TargetRow&, int tp,
                              DryRun& run) {
  const StoredScale* k = set.find(layer, ScaleSide::kK);
  const StoredScale* v = set.find(layer, ScaleSide::kV);
  const SideOutcome one = side("default 1.0", 1.0f, tp);
  for (const StoredScale* scale : {k, v}) {
    if (!has_many(scale)) continue;
    refuse(run, scale, layer, "KV-cache scale expects a scalar weight");
    return outcome(layer, one, one);
  }
  // Absent is -1 there. A shared number (kv_scale) arrives as K's and is copied.
  const float a = k == nullptr ? -1 : in_model_dtype(set, k->values[0]);
  const float b = v == nullptr || v->is_shared ? -1 : in_model_dtype(set, v->values[0]);
  if (a > 0 && b > 0) return outcome(layer, side("used", a, tp), side("used", b, tp));
  if (a < 0 && b < 0) return outcome(layer, one, one);
  if (a > 0) return outcome(layer, side("used", a, tp), side("shared", a, tp));
  refuse(run, b > 0 ? v : k, layer, "assertion failure while loading: k_scale is not above 0");
  return outcome(layer, one, one);
}

LayerOutcome load_sglang(const ScaleSet& set, int layer, const TargetRow&, int tp, DryRun& run) {
  const SideOutcome one = side("default 1.0", 1.0f, tp);
  SideOutcome ks = one, vs = one;
  for (int rank = 0; rank < tp; ++rank) {
    const StoredScale* k = set.find(layer, ScaleSide::kK, rank);
    const StoredScale* v = set.find(layer, ScaleSide::kV, rank);
    for (const StoredScale* scale : {k, v}) {
      if (!has_many(scale)) continue;
      refuse(run, scale, layer, "one scale per tensor is expected");
      return outcome(layer, one, one);
    }
    const float a = k == nullptr ? -1 : k->values[0];
    const float b = v == nullptr ? -1 : v->values[0];
    const auto at = static_cast<size_t>(rank);
    if (a > 0) {
      const bool is_own = b > 0 && v != nullptr && !v->is_shared;
      ks = {"used", ks.ranks};
      vs = {is_own ? "used" : "shared", vs.ranks};
      ks.ranks[at] = {a};
      vs.ranks[at] = {b > 0 ? b : a};
    } else if (b > 0) {
      refuse(run, v, layer, "assertion failure while loading: v_scale without k_scale");
      return outcome(layer, one, one);
    }
  }
  return outcome(layer, ks, vs);
}

LayerOutcome load_edge_llm(const ScaleSet& set, int layer, const TargetRow&, int tp, DryRun& run) {
  const auto take = [&](ScaleSide wanted) {
    const StoredScale* scale = set.find(layer, wanted);
    const bool is_read =
        scale != nullptr && (scale->spelling.ends_with("_proj.k_scale") ||
                             scale->spelling.ends_with("_proj.v_scale") || scale->dtype == "ONNX");
    if (!is_read) return side("default 1.0", 1.0f, tp);
    if (has_many(scale)) refuse(run, scale, layer, "one scale per tensor is expected");
    // BF16 tensors are cast to FP16 at load, F32 ones are not.
    const float value = scale->values[0];
    return side("used", scale->dtype == "BF16" ? f16::decode(f16::encode(value)) : value, tp);
  };
  const SideOutcome k = take(ScaleSide::kK);
  return outcome(layer, k, take(ScaleSide::kV));
}

LayerOutcome load_tensorrt_llm_legacy(const ScaleSet& set, int layer, const TargetRow&, int tp,
                                      DryRun& run) {
  const auto take = [&](ScaleSide wanted) {
    SideOutcome out = side("used", 1.0f, tp);
    for (int rank = 0; rank < tp; ++rank) {
      const StoredScale* scale = set.find(layer, wanted, rank);
      if (scale == nullptr || scale->values.size() != 1) {
        refuse(run, scale, layer, "expected one kv_cache_scaling_factor for each rank");
        return out;
      }
      out.ranks[static_cast<size_t>(rank)] = {scale->values[0]};
      if (scale->is_shared && wanted == ScaleSide::kV) out.how = "shared";
    }
    return out;
  };
  const SideOutcome k = take(ScaleSide::kK);
  return outcome(layer, k, take(ScaleSide::kV));
}

}  // namespace kv
