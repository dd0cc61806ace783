#pragma once

#include <span>

#include "targets/targets.h"

namespace kv {

std::span<const TargetRow> tensorrt_llm_targets();

LaunchFlags tensorrt_llm_launch_flags(const LaunchRequest& request);
LaunchFlags tensorrt_llm_legacy_launch_flags(const LaunchRequest& request);

}  // namespace kv
