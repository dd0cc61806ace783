#pragma once

#include <span>

#include "targets/targets.h"

namespace kv {

std::span<const TargetRow> edge_llm_targets();

LaunchFlags edge_llm_launch_flags(const LaunchRequest& request);

}  // namespace kv
