#pragma once

#include <span>

#include "ops/attend.h"

namespace kv {

/// The CPU twin; arguments are checked already.
std::vector<KernelUsed> attend_cpu(std::span<const AttendParams> params);

}  // namespace kv
