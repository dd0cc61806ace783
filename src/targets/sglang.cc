#include "targets/sglang.h"

#include <array>

namespace kv {
namespace {

constexpr std::string_view kNumerics =
    "which numerics each of its backends uses was not determined";

constexpr std::array<LayoutSupport, 4> kLayouts = {{
    {"fp8_scale1", true, "bf16", kNumerics},
    {"fp8_tensor", true, "bf16", kNumerics},
    {"fp8_head", false, "bf16",
     "scales are per tensor; an attn_head scheme is ignored with a warning"},
    {"fp8_token_head", false, "bf16", "there is no such cache dtype"},
}};

constexpr std::array<TargetRow, 1> kRows = {{
    {"sglang:default",
     "sglang",
     "the backend that SGLang picks",
     "0.5.23",
     "NVIDIA Ada and later (8.9)",
     "nearest",
     "",
     "SGLang 0.5.23, the released wheel: loader run on a CPU, kernels read",
     kLayouts,
     {"NVIDIA", 89, 129},
     {},
     PerHeadScales::kRefused,
     ""},
}};

}  // namespace

std::span<const TargetRow> sglang_targets() { return kRows; }

LaunchFlags sglang_launch_flags(const LaunchRequest& request) {
  LaunchFlags out;
  if (request.layout == "bf16") {
    out.flags = {"--kv-cache-dtype", "bf16"};
    return out;
  }
  if (!request.bf16_layers.empty() || !request.half_bf16_layers.empty()) {
    out.can_express = false;
    out.notes = {"SGLang keeps all layers in one dtype: some layers in BF16 cannot be said"};
    return out;
  }
  out.flags = {"--kv-cache-dtype", "fp8_e4m3"};
  if (request.layout == "fp8_tensor") {
    out.notes.emplace_back(
        "the scales must be in the checkpoint that is served; the log says that scales default to "
        "1.0 whether or not they were loaded, so it proves nothing");
  }
  return out;
}

}  // namespace kv
