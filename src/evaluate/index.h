#pragma once

#include <cstddef>
#include <cstdint>

namespace kv {

/// Counts are signed here, the indices of a vector are not.
inline size_t index(int64_t i) { return static_cast<size_t>(i); }

}  // namespace kv
