#pragma once

#include <functional>
#include <span>

#include "cuda/device.h"

namespace kv::cuda {

struct ReplayTiming {
  double median_us = 0, fastest_us = 0, p90_us = 0;  // per call
};

using Call = std::function<void(StreamHandle)>;

/// Captures all calls in one graph and replays it: launches cost what they cost in a graph, and
/// calls that rotate over more bytes than the L2 holds find it cold. Waits for the device first, so
/// that what the calls read may have been written on any stream.
ReplayTiming time_calls(std::span<const Call> calls, int replays = 15);

/// GB/s of reading `bytes` of device memory once: what this card can do, measured now.
double read_limit_gbps(const void* data, int64_t bytes);

}  // namespace kv::cuda
