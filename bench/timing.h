#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/device.h"

namespace kv::bench {

struct Timing {
  double median_us = 0, fastest_us = 0, slowest_us = 0;  // per call; slowest: 90th percentile
};

using Call = std::function<void(cuda::StreamHandle)>;

/// Captures all calls in one graph and replays it: launches cost what they cost in a graph, and
/// calls that rotate over more bytes than the L2 holds find it cold.
inline Timing time_calls(const std::vector<Call>& calls, int replays = 15) {
  cuda::check(cudaDeviceSynchronize(), "what the calls read");  // uploaded on another stream
  const cuda::Stream stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  for (const Call& call : calls) call(stream.handle());  // what a first launch sets up
  stream.synchronize();
  cuda::check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "capture");
  for (const Call& call : calls) call(stream.handle());
  cuda::check(cudaStreamEndCapture(stream.handle(), &graph), "capture");
  cuda::check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  std::vector<double> us;
  cudaEvent_t begin, end;
  cuda::check(cudaEventCreate(&begin), "event");
  cuda::check(cudaEventCreate(&end), "event");
  for (int i = -2; i < replays; ++i) {
    cuda::check(cudaEventRecord(begin, stream.handle()), "event");
    cuda::check(cudaGraphLaunch(exec, stream.handle()), "cudaGraphLaunch");
    cuda::check(cudaEventRecord(end, stream.handle()), "event");
    cuda::check(cudaEventSynchronize(end), "replay");
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 0) us.push_back(1e3 * ms / static_cast<double>(calls.size()));
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us[us.size() * 9 / 10]};
}

/// GB/s of reading `bytes` of device memory once: what this card can do, measured now.
double read_limit_gbps(const void* data, int64_t bytes);

}  // namespace kv::bench
