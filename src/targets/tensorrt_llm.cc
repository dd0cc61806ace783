#include "targets/tensorrt_llm.h"

#include <array>

namespace kv {
namespace {

constexpr std::string_view kUnused =
    "FP8 scales are parsed and not applied: the cache runs at scale 1.0";

constexpr std::array<LayoutSupport, 4> kLayouts = {{
    {"fp8_scale1", true, "fp8", "numerics inferred from the engine's FP8 kernels"},
    {"fp8_tensor", false, "fp8", kUnused},
    {"fp8_head", false, "fp8", kUnused},
    {"fp8_token_head", false, "fp8", "there is no such cache dtype"},
}};

constexpr std::string_view kLegacyMath =
    "one scale for K and V of a layer; numerics of its kernels inferred";

constexpr std::array<LayoutSupport, 4> kLegacyLayouts = {{
    {"fp8_scale1", true, "bf16", kLegacyMath},
    {"fp8_tensor", true, "bf16", kLegacyMath},
    {"fp8_head", false, "bf16", "it takes one scale for K and V of a layer"},
    {"fp8_token_head", false, "bf16", "there is no such cache dtype"},
}};

constexpr std::array<TargetRow, 2> kRows = {{
    {"tensorrt-llm:pytorch",
     "tensorrt-llm",
     "PyTorch backend",
     "main of 2026-08",
     "NVIDIA Ada and later (8.9)",
     "nearest",
     "",
     "TensorRT-LLM, attention backend and quantization config of the PyTorch backend, read",
     kLayouts,
     {"NVIDIA", 89, 129},
     {},
     PerHeadScales::kRefused,
     ""},
    {"tensorrt-llm-legacy:tensorrt",
     "tensorrt-llm-legacy",
     "TensorRT backend",
     "until it was removed in 2026",
     "NVIDIA Ada and later (8.9)",
     "nearest",
     "",
     "the legacy checkpoint format as ModelOpt writes it and TensorRT-LLM's converters did, read",
     kLegacyLayouts,
     {"NVIDIA", 89, 129},
     {},
     PerHeadScales::kRefused,
     ""},
}};

}  // namespace

std::span<const TargetRow> tensorrt_llm_targets() { return kRows; }

LaunchFlags tensorrt_llm_launch_flags(const LaunchRequest& request) {
  LaunchFlags out;
  if (!request.bf16_layers.empty() || !request.half_bf16_layers.empty()) {
    out.can_express = false;
    out.notes = {"TensorRT-LLM keeps all layers in one dtype: some layers in BF16 cannot be said"};
    return out;
  }
  out.notes.emplace_back(
      request.layout == "bf16"
          ? "KvCacheConfig(dtype=\"auto\") as kv_cache_config"
          : "KvCacheConfig(dtype=\"fp8\") as kv_cache_config; scale 1.0 whatever "
            "the checkpoint holds");
  return out;
}

LaunchFlags tensorrt_llm_legacy_launch_flags(const LaunchRequest& request) {
  LaunchFlags out;
  if (!request.bf16_layers.empty() || !request.half_bf16_layers.empty()) {
    out.can_express = false;
    out.notes = {"TensorRT-LLM keeps all layers in one dtype: some layers in BF16 cannot be said"};
    return out;
  }
  if (request.layout != "bf16") {
    out.notes = {
        "the FP8 cache is turned on by kv_cache_quant_algo in the checkpoint's config.json",
        "only releases with the TensorRT backend read this form; it was removed in 2026"};
  }
  return out;
}

}  // namespace kv
