#include "endpoint/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// One load under way: workers take the requests in their order.
class Load {
 public:
  Load(CompletionClient& client, const std::vector<LoadRequest>& requests, const LoadPlan& plan,
       std::atomic<bool>& stop)
      : client_(client),
        requests_(requests),
        moments_(intended_moments(requests.size(), plan)),
        is_open_(plan.rate > 0),
        stop_(stop),
        begin_(Clock::now()) {
    out_.answers.resize(requests.size());
  }

  void work() {
    for (size_t i = next_++; i < requests_.size() && !stop_; i = next_++) {
      if (!wait_until(moments_[i])) break;
      ask(requests_[i], out_.answers[i], is_open_ ? moments_[i] : ms_since(begin_));
      ++done_;
    }
    ++ended_workers_;
  }

  bool is_done() const { return done_ == requests_.size(); }
  size_t ended_workers() const { return ended_workers_; }

  LoadResult take() {
    out_.duration_ms = ms_since(begin_);
    return std::move(out_);
  }

 private:
  /// In slices, so that a load that is stopped ends; false then.
  bool wait_until(double moment) const {
    constexpr double kSlice = 50;
    for (double left = moment - ms_since(begin_); left > 0; left = moment - ms_since(begin_)) {
      if (stop_) return false;
      std::this_thread::sleep_for(
          std::chrono::duration<double, std::milli>(std::min(left, kSlice)));
    }
    return true;
  }

  void ask(const LoadRequest& request, LoadAnswer& answer, double intended) {
    answer.intended_ms = intended;
    answer.sent_late_ms = ms_since(begin_) - intended;
    answer.input_tokens = std::ssize(request.prompt);
    double last = 0;
    const auto arrived = [&](int64_t tokens) {
      const double now = ms_since(begin_) - intended;
      if (answer.output_tokens == 0) {
        answer.ttft_ms = now;
      } else {
        answer.itl_ms.push_back(now - last);
      }
      last = now;
      answer.output_tokens += tokens;
    };
    try {
      const StreamedCounts counts =
          client_.stream({request.prompt, request.output_tokens, {}, true}, arrived);
      if (counts.output_tokens > 0) answer.output_tokens = counts.output_tokens;
      if (answer.output_tokens != request.output_tokens) {
        answer.error = fmt::format("expected {} tokens, found {}", request.output_tokens,
                                   answer.output_tokens);
      }
    } catch (const std::exception& error) {  // nothing may leave a worker's thread
      answer.error = error.what();
    }
    answer.e2e_ms = last;
  }

  CompletionClient& client_;
  const std::vector<LoadRequest>& requests_;
  std::vector<double> moments_;
  bool is_open_;
  std::atomic<bool>& stop_;
  Clock::time_point begin_;
  std::atomic<size_t> next_{0}, done_{0}, ended_workers_{0};
  LoadResult out_;
};

}  // namespace

std::vector<double> intended_moments(size_t n, const LoadPlan& plan) {
  std::vector<double> out(n, 0.0);
  if (plan.rate <= 0) return out;
  SplitMix64 random(plan.seed);
  double now = 0;
  for (double& moment : out) {
    moment = now;
    now -= std::log(1.0 - random.uniform()) / plan.rate * 1000;  // of (0, 1]: finite
  }
  return out;
}

LoadResult run_load(CompletionClient& client, const std::vector<LoadRequest>& requests,
                    const LoadPlan& plan, std::atomic<bool>& stop,
                    const std::function<void()>& check) {
  if (plan.concurrency < 1 || plan.rate < 0) {
    throw ValueError("load: expected a concurrency of at least 1 and no negative rate");
  }
  Load load(client, requests, plan, stop);
  std::vector<std::thread> workers;
  const size_t count = std::min(requests.size(), static_cast<size_t>(plan.concurrency));
  const auto join = [&] {
    for (std::thread& one : workers) one.join();
  };
  try {
    for (size_t i = 0; i < count; ++i) workers.emplace_back([&] { load.work(); });
    while (load.ended_workers() < count) {
      check();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  } catch (...) {
    stop = true;
    join();
    throw;
  }
  join();
  if (!load.is_done()) throw IoError("load: stopped before every request was sent");
  return load.take();
}

}  // namespace kv
