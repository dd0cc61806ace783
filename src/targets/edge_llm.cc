#include "targets/edge_llm.h"

#include <array>

namespace kv {
namespace {

constexpr std::string_view kMath = "attention is computed in FP16";

constexpr std::array<LayoutSupport, 4> kLayouts = {{
    {"fp8_scale1", true, "bf16", kMath},
    {"fp8_tensor", true, "bf16", kMath},
    {"fp8_head", false, "bf16", "its attention plugin takes one scale for K and one for V"},
    {"fp8_token_head", false, "bf16", "there is no such cache dtype"},
}};

constexpr std::array<TargetRow, 1> kRows = {{
    {"edge-llm:plugin",
     "edge-llm",
     "AttentionPlugin",
     "0.8 - 0.10",
     "NVIDIA; FP8 storage also below 8.9",
     "nearest",
     "",
     "TensorRT Edge-LLM 0.5.0, read whole, and single files of about 0.8 to 0.10",
     kLayouts,
     {"NVIDIA", 80, 129},
     {},
     PerHeadScales::kRefused,
     ""},
}};

}  // namespace

std::span<const TargetRow> edge_llm_targets() { return kRows; }

LaunchFlags edge_llm_launch_flags(const LaunchRequest& request) {
  LaunchFlags out;
  if (!request.bf16_layers.empty() || !request.half_bf16_layers.empty()) {
    out.can_express = false;
    out.notes = {"Edge-LLM keeps all layers in one dtype: some layers in BF16 cannot be said"};
    return out;
  }
  if (request.layout != "bf16") {
    out.notes = {
        "tensorrt-edgellm-export turns the FP8 cache on by hf_quant_config.json; there is no flag"};
  }
  return out;
}

}  // namespace kv
