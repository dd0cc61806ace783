#pragma once

#include <cstdint>

namespace kv {

/// Highway's bit of the target whose code a dispatched call runs now; reported by that code.
int64_t dispatched_highway_target();

}  // namespace kv
