#include "targets/vllm.h"

#include <array>

namespace kv {
namespace {

constexpr std::string_view kVersions = "0.32";
constexpr std::string_view kOnTriton =
    "runs on TRITON_ATTN, which the engine chooses by itself: no other backend takes "
    "fp8_per_token_head";
constexpr std::string_view kSourceCuda =
    "vLLM 0.32.0, attention backends and their selection, read";
constexpr std::string_view kSourceCpu = "vLLM 0.32.0 CPU build, executed";

constexpr std::array<LayoutSupport, 4> kFlashAttn3 = {{
    {"fp8_scale1", true, "fp8", "head_dim a multiple of 8, at most 256"},
    {"fp8_tensor", true, "fp8", "head_dim a multiple of 8, at most 256"},
    {"fp8_head", true, "fp8", "head_dim a multiple of 8, at most 256"},
    {"fp8_token_head", true, "bf16", kOnTriton},
}};

constexpr std::array<LayoutSupport, 4> kFlashAttn4 = {{
    {"fp8_scale1", true, "fp8", "head_dim a multiple of 8, at most 128"},
    {"fp8_tensor", true, "fp8", "head_dim a multiple of 8, at most 128"},
    {"fp8_head", true, "fp8", "head_dim a multiple of 8, at most 128"},
    {"fp8_token_head", true, "bf16", kOnTriton},
}};

// Prefill quantizes Q on SM90, decode does not: decode is what reads a long cache.
constexpr std::array<LayoutSupport, 4> kFlashInfer = {{
    {"fp8_scale1", true, "bf16", "head_dim 64, 128, 256 or 512"},
    {"fp8_tensor", true, "bf16", "head_dim 64, 128, 256 or 512"},
    {"fp8_head", false, "bf16", "FLASHINFER refuses per-head scales"},
    {"fp8_token_head", true, "bf16", kOnTriton},
}};

// Q is quantized too.
constexpr std::array<LayoutSupport, 4> kFlashInfer100 = {{
    {"fp8_scale1", true, "fp8", "head_dim 64, 128, 256 or 512"},
    {"fp8_tensor", true, "fp8", "head_dim 64, 128, 256 or 512"},
    {"fp8_head", false, "fp8", "FLASHINFER refuses per-head scales"},
    {"fp8_token_head", true, "bf16", kOnTriton},
}};

constexpr std::array<LayoutSupport, 4> kTriton = {{
    {"fp8_scale1", true, "fp8", "compute capability 8.9 or later"},
    {"fp8_tensor", true, "fp8", "compute capability 8.9 or later"},
    {"fp8_head", false, "fp8", "TRITON_ATTN refuses per-head scales"},
    {"fp8_token_head", true, "bf16", "compute capability 8.9 or later"},
}};

constexpr std::array<LayoutSupport, 4> kCpu = {{
    {"fp8_scale1", true, "bf16", "AVX-512 or AMX, head_dim a multiple of 32"},
    {"fp8_tensor", true, "bf16", "AVX-512 or AMX, head_dim a multiple of 32"},
    {"fp8_head", false, "bf16", "CPU_ATTN takes the largest head's scale for all, without a word"},
    {"fp8_token_head", false, "bf16", "CPU_ATTN accepts it and stores garbage"},
}};

constexpr std::array<int, 4> kFlashInferHeads = {64, 128, 256, 512};
constexpr std::array<int, 9> kCpuHeads = {32, 64, 96, 128, 160, 192, 224, 256, 512};

constexpr std::string_view kFlashInferLog = "FlashInfer resolved query dtypes: .*kv_cache_dtype=..";
constexpr std::string_view kAutoLog = "Using (\\w+) attention backend out of potential backends";

constexpr std::array<TargetRow, 7> kRows = {{
    {"vllm:flash_attn3",
     "vllm",
     "FLASH_ATTN (FlashAttention 3)",
     kVersions,
     "NVIDIA Hopper (9.0)",
     "nearest",
     "",
     kSourceCuda,
     kFlashAttn3,
     {"NVIDIA", 90, 90},
     {8, 8, 256, {}},
     PerHeadScales::kUsed,
     "Using FlashAttention version 3"},
    {"vllm:flash_attn4",
     "vllm",
     "FLASH_ATTN (FlashAttention 4)",
     kVersions,
     "NVIDIA Blackwell (10.x)",
     "nearest",
     "FLASH_ATTN",
     kSourceCuda,
     kFlashAttn4,
     {"NVIDIA", 100, 109},
     {8, 8, 128, {}},
     PerHeadScales::kUsed,
     "Using FlashAttention version 4"},
    {"vllm:flashinfer",
     "vllm",
     "FLASHINFER",
     kVersions,
     "NVIDIA Ampere to Hopper (8.0 - 9.0)",
     "nearest",
     "FLASHINFER",
     kSourceCuda,
     kFlashInfer,
     {"NVIDIA", 80, 90},
     {1, 1, 512, kFlashInferHeads},
     PerHeadScales::kRefused,
     kFlashInferLog},
    {"vllm:flashinfer_sm100",
     "vllm",
     "FLASHINFER (TRTLLM kernels)",
     kVersions,
     "NVIDIA Blackwell (10.x)",
     "nearest",
     "FLASHINFER",
     kSourceCuda,
     kFlashInfer100,
     {"NVIDIA", 100, 109},
     {1, 1, 512, kFlashInferHeads},
     PerHeadScales::kRefused,
     kFlashInferLog},
    {"vllm:flashinfer_sm120",
     "vllm",
     "FLASHINFER",
     kVersions,
     "NVIDIA Blackwell (12.0, 12.1)",
     "nearest",
     "FLASHINFER",
     kSourceCuda,
     kFlashInfer,
     {"NVIDIA", 120, 121},
     {1, 1, 512, kFlashInferHeads},
     PerHeadScales::kRefused,
     kFlashInferLog},
    {"vllm:triton",
     "vllm",
     "TRITON_ATTN",
     kVersions,
     "NVIDIA Ada and later (8.9)",
     "nearest",
     "TRITON_ATTN",
     kSourceCuda,
     kTriton,
     {"NVIDIA", 89, 129},
     {1, 32, 1 << 20, {}},
     PerHeadScales::kRefused,
     kAutoLog},
    {"vllm:cpu",
     "vllm",
     "CPU_ATTN",
     kVersions,
     "x86 with AVX-512 or AMX",
     "truncate",
     "",
     kSourceCpu,
     kCpu,
     {"CPU", 0, 0},
     {32, 32, 512, kCpuHeads},
     PerHeadScales::kMaximum,
     ""},
}};

constexpr std::string_view kNeedsScales =
    "the scales must be in the checkpoint that is served: without them the engine uses 1.0";

}  // namespace

std::span<const TargetRow> vllm_targets() { return kRows; }

LaunchFlags vllm_launch_flags(const LaunchRequest& request, const TargetRow& target) {
  LaunchFlags out;
  if (request.layout == "bf16") {
    out.flags = {"--kv-cache-dtype", "auto"};
    return out;
  }
  if (!request.half_bf16_layers.empty()) {
    out.can_express = false;
    out.notes = {
        "vLLM keeps a layer's K and V in one dtype: only K or only V in BF16 cannot be said"};
    return out;
  }
  const bool is_dynamic = request.layout == "fp8_token_head";
  out.flags = {"--kv-cache-dtype", is_dynamic ? "fp8_per_token_head" : "fp8"};
  if (!request.bf16_layers.empty()) out.flags.emplace_back("--kv-cache-dtype-skip-layers");
  for (const int layer : request.bf16_layers) out.flags.push_back(std::to_string(layer));
  // TRITON_ATTN is the only backend with per-token-head scales, so naming another would be refused.
  if (!target.pick.empty() && !is_dynamic) {
    out.flags.emplace_back("--attention-backend");
    out.flags.emplace_back(target.pick);
  }
  if (request.layout == "fp8_tensor" || request.layout == "fp8_head") {
    out.notes.emplace_back(kNeedsScales);
  }
  for (const LayoutSupport& row : target.layouts) {
    if (row.layout == request.layout && !row.note.empty()) out.notes.emplace_back(row.note);
  }
  return out;
}

}  // namespace kv
