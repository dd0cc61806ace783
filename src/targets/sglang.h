#pragma once

#include <span>

#include "targets/targets.h"

namespace kv {

std::span<const TargetRow> sglang_targets();

LaunchFlags sglang_launch_flags(const LaunchRequest& request);

}  // namespace kv
