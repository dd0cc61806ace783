#pragma once

#include "ops/store_kv.h"

namespace kv {

/// The CUDA twin; arguments are checked already. A build without CUDA throws UnsupportedError.
KernelUsed store_kv_cuda(const StoreKvParams& params);

}  // namespace kv
