#include "targets/latent_backends.h"

#include <array>

namespace kv {
namespace {

constexpr std::string_view kOnlySparse =
    "the 656-byte form is for models with an indexer (index_topk)";
constexpr std::string_view kOneScale = "V is read through k_scale, v_scale is not used";
constexpr std::string_view kNoTiles = "it takes one scale a layer only";

constexpr std::array<LayoutSupport, 3> kFlashMla = {{
    {"fp8_scale1", true, "fp8", kOneScale},
    {"fp8_tensor", true, "fp8", kOneScale},
    {"fp8_ds_mla", false, "bf16", kOnlySparse},
}};

// Widens to 16 bit in the kernel, the query stays in 16 bit.
constexpr std::array<LayoutSupport, 3> kTritonMla = {{
    {"fp8_scale1", true, "bf16", kOneScale},
    {"fp8_tensor", true, "bf16", kOneScale},
    {"fp8_ds_mla", false, "bf16", kOnlySparse},
}};

constexpr std::array<LayoutSupport, 3> kCutlassMla = {{
    {"fp8_scale1", true, "fp8", "every scale must be exactly 1.0"},
    {"fp8_tensor", false, "fp8", "CUTLASS_MLA refuses any scale but 1.0"},
    {"fp8_ds_mla", false, "bf16", kOnlySparse},
}};

constexpr std::array<LayoutSupport, 3> kFlashMlaSparse = {{
    {"fp8_scale1", false, "bf16", "FLASHMLA_SPARSE turns fp8 into fp8_ds_mla"},
    {"fp8_tensor", false, "bf16", "FLASHMLA_SPARSE turns fp8 into fp8_ds_mla: no scale is read"},
    {"fp8_ds_mla", true, "bf16", "656 bytes a token: 512 codes, 4 scales, 64 values in BF16"},
}};

constexpr std::array<LayoutSupport, 3> kFlashInferSparse90 = {{
    {"fp8_scale1", true, "bf16", kOneScale},
    {"fp8_tensor", true, "bf16",
     "k_scale is applied to the latent, the turned part is read at 1.0"},
    {"fp8_ds_mla", false, "bf16", kNoTiles},
}};

constexpr std::array<LayoutSupport, 3> kCpuMla = {{
    {"fp8_scale1", false, "bf16", "CPU_MLA stores 16 bit only"},
    {"fp8_tensor", false, "bf16", "CPU_MLA stores 16 bit only"},
    {"fp8_ds_mla", false, "bf16", "CPU_MLA stores 16 bit only"},
}};

constexpr std::array<LatentBackend, 6> kBackends = {{
    {"vllm:flashmla",
     "vllm",
     "NVIDIA Hopper and Blackwell (9.x, 10.x)",
     {"NVIDIA", 90, 109},
     false,
     kFlashMla},
    {"vllm:triton_mla",
     "vllm",
     "NVIDIA Ada and later (8.9)",
     {"NVIDIA", 89, 129},
     false,
     kTritonMla},
    {"vllm:cutlass_mla",
     "vllm",
     "NVIDIA Blackwell (10.x)",
     {"NVIDIA", 100, 109},
     false,
     kCutlassMla},
    {"vllm:flashmla_sparse",
     "vllm",
     "NVIDIA Hopper and Blackwell (9.x, 10.x)",
     {"NVIDIA", 90, 109},
     true,
     kFlashMlaSparse},
    {"vllm:flashinfer_mla_sparse_sm90",
     "vllm",
     "NVIDIA Hopper (9.x)",
     {"NVIDIA", 90, 99},
     true,
     kFlashInferSparse90},
    {"vllm:cpu_mla", "vllm", "x86", {"CPU", 0, 0}, false, kCpuMla},
}};

}  // namespace

std::span<const LatentBackend> latent_backends() { return kBackends; }

}  // namespace kv
