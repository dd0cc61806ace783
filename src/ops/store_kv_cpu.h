#pragma once

#include "ops/store_kv.h"

namespace kv {

/// The CPU twin; arguments are checked already.
KernelUsed store_kv_cpu(const StoreKvParams& params);

}  // namespace kv
