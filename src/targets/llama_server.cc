#include "targets/llama_server.h"

#include <array>

namespace kv {
namespace {

constexpr std::string_view kNoFp8 =
    "llama.cpp has no FP8 cache; its cache of about this size is q8_0";

constexpr std::array<LayoutSupport, 4> kLayouts = {{
    {"fp8_scale1", false, "bf16", kNoFp8},
    {"fp8_tensor", false, "bf16", kNoFp8},
    {"fp8_head", false, "bf16", kNoFp8},
    {"fp8_token_head", false, "bf16", kNoFp8},
}};

constexpr std::string_view kBlocks =
    "not FP8: blocks of 32 values, each of 8 bits and a sign, under one F16 scale, 34 bytes a "
    "block; the log's n_rot_k and n_rot_v say whether values were rotated before";

constexpr std::array<LayoutSupport, 1> kOwn = {{{"q8_0", true, "q8_0", kBlocks}}};

constexpr std::array<TargetRow, 1> kRows = {{
    {.name = "llama-server:cpu",
     .engine = "llama-server",
     .backend = "ggml CPU",
     .versions = "2026.10",
     .devices = "CPU",
     .round = "nearest",
     .pick = "",
     .source = "llama.cpp's server in xllamacpp 2026.10.11549, executed",
     .layouts = kLayouts,
     .device_range = {"CPU", 0, 0},
     // A block of q8_0 is one of a head's vector.
     .head_dims = {32, 32, 1 << 20, {}},
     .per_head = PerHeadScales::kRefused,
     .log = "llama_kv_cache: size = .*, K \\((\\w+)\\): .*, V \\((\\w+)\\)",
     .own_layouts = kOwn},
}};

}  // namespace

std::span<const TargetRow> llama_server_targets() { return kRows; }

LaunchFlags llama_server_launch_flags(const LaunchRequest& request) {
  LaunchFlags out;
  if (!request.bf16_layers.empty() || !request.half_bf16_layers.empty()) {
    out.can_express = false;
    out.notes = {"llama-server keeps all layers in one type: some layers in 16 bit cannot be said"};
    return out;
  }
  const char* type = request.layout == "q8_0" ? "q8_0" : "f16";
  out.flags = {"-ctk", type, "-ctv", type};
  if (request.layout == "q8_0") out.notes.emplace_back(kBlocks);
  return out;
}

}  // namespace kv
