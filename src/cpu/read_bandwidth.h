#pragma once

#include <cstdint>

namespace kv::cpu {

/// Bytes per second, in units of 1e9, at which all threads together read `bytes` of memory once:
/// the best of `repetitions`. Every thread streams through a piece of its own, 64 bytes at a time
/// with prefetch 4 KiB ahead; what is measured is a limit for anything that must read weights or a
/// cache. Throws ValueError for bytes < 1 MiB.
double read_bandwidth_gbps(int64_t bytes, int repetitions);

}  // namespace kv::cpu
