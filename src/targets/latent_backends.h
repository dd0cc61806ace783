#pragma once

#include <span>

#include "targets/targets.h"

namespace kv {

/// A backend of an engine for models that cache a latent (MLA). Those of targets.h do not run them.
struct LatentBackend {
  std::string_view name;  // "vllm:flashmla"
  std::string_view engine;
  std::string_view devices;
  DeviceRange device_range;
  bool is_sparse = false;  // for models with an indexer (index_topk), and for these alone
  std::span<const LayoutSupport> layouts;  // "fp8_scale1", "fp8_tensor", "fp8_ds_mla"
};

/// Of vLLM 0.32; of other engines nothing is known here.
std::span<const LatentBackend> latent_backends();

}  // namespace kv
