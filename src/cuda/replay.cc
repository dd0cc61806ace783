#include "cuda/replay.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "cuda/limits.h"

namespace kv::cuda {
namespace {

/// The calls of one graph, between two events.
class Graph {
 public:
  Graph(std::span<const Call> calls, StreamHandle stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (const Call& call : calls) call(stream);
    check(cudaStreamEndCapture(stream, &graph_), "capture");
    check(cudaGraphInstantiate(&exec_, graph_, 0), "cudaGraphInstantiate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }

  double replay_us() const {
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    check(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch");
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "replay");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return 1e3 * ms;
  }

 private:
  StreamHandle stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

ReplayTiming time_calls(std::span<const Call> calls, int replays) {
  synchronize_device();
  const Stream stream;
  for (const Call& call : calls) call(stream.handle());  // what a first launch sets up
  stream.synchronize();
  const Graph graph(calls, stream.handle());
  for (int i = 0; i < 2; ++i) graph.replay_us();
  std::vector<double> us;
  for (int i = 0; i < replays; ++i)
    us.push_back(graph.replay_us() / static_cast<double>(calls.size()));
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us[us.size() * 9 / 10]};
}

double read_limit_gbps(const void* data, int64_t bytes) {
  const Call call = [&](StreamHandle stream) { read_all(data, bytes, stream); };
  const std::vector<Call> calls = {call, call};
  return static_cast<double>(bytes) / time_calls(calls, 9).median_us / 1e3;
}

}  // namespace kv::cuda
