#pragma once

#include <string>

namespace kv {

/// What really ran, as the dispatcher knows it: goes into every record.
struct KernelUsed {
  std::string name;  // "attend_cpu/avx3_zen4/e4m3_per_head,e4m3_per_head/planes"
};

}  // namespace kv
