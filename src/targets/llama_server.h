#pragma once

#include <span>

#include "targets/targets.h"

namespace kv {

std::span<const TargetRow> llama_server_targets();

/// -ctk and -ctv, always said: what a server stores by default is another release's choice.
LaunchFlags llama_server_launch_flags(const LaunchRequest& request);

}  // namespace kv
