#pragma once

#include <span>

#include "targets/targets.h"

namespace kv {

/// vLLM's backends that run an FP8 cache; the one for Hopper first.
std::span<const TargetRow> vllm_targets();

/// The part of launch_flags() that vLLM's rows share.
LaunchFlags vllm_launch_flags(const LaunchRequest& request, const TargetRow& target);

}  // namespace kv
