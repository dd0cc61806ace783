#pragma once

#include <span>
#include <vector>

#include "ops/attend.h"

namespace kv {

/// The CUDA twin; arguments are checked already. A build without CUDA throws UnsupportedError.
std::vector<KernelUsed> attend_cuda(std::span<const AttendParams> params);

}  // namespace kv
