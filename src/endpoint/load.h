#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "endpoint/completion.h"

namespace kv {

/// One request of a load: a prompt, and how many tokens are to be generated after it.
struct LoadRequest {
  std::vector<int32_t> prompt;
  int64_t output_tokens = 1;
};

/// How requests are sent.
///   closed loop   rate 0: `concurrency` at a time, each followed by the next
///   open loop     rate > 0: at times drawn beforehand, whatever the server does with the earlier
///                 ones; at most `concurrency` are under way, the others wait here, and their
///                 waiting counts: a slow server is not asked less for being slow
struct LoadPlan {
  double rate = 0;  // requests per second, exponential gaps
  int64_t concurrency = 1;
  uint64_t seed = 1;  // of the gaps
};

/// What became of one request. Times in ms after the moment at which it was to be sent (open loop)
/// or was sent (closed loop).
struct LoadAnswer {
  double intended_ms = 0;      // since the load began
  double sent_late_ms = 0;     // behind the intended moment
  double ttft_ms = 0;          // to the first piece with tokens
  double e2e_ms = 0;           // to the last one
  std::vector<double> itl_ms;  // between pieces
  int64_t input_tokens = 0, output_tokens = 0;
  std::string error;  // empty: all tokens came
};

struct LoadResult {
  std::vector<LoadAnswer> answers;  // in the order of the requests
  double duration_ms = 0;           // from the first moment to the last answer
};

/// The intended moments of n requests, ms: all 0 in a closed loop.
std::vector<double> intended_moments(size_t n, const LoadPlan& plan);

/// Sends all requests. A request that fails is an answer with its error and is not sent again: a
/// second attempt would hide the first one's time. `check` is called several times a second and may
/// throw, which ends the rest. The client should be made with one attempt.
LoadResult run_load(CompletionClient& client, const std::vector<LoadRequest>& requests,
                    const LoadPlan& plan, std::atomic<bool>& stop,
                    const std::function<void()>& check);

}  // namespace kv
