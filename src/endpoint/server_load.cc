#include "endpoint/server_load.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>

#include "kvscale/error.h"

namespace kv {
namespace {

/// An engine's names; empty: it has no such metric.
struct MetricNames {
  std::string_view running, waiting, cache_usage, preemptions;
};

MetricNames names_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::kVllm:
      return {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
              "vllm:num_preemptions_total"};
    case Dialect::kSglang:
      return {"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage", ""};
    case Dialect::kLlamaServer:
      return {"llamacpp:requests_processing", "llamacpp:requests_deferred", "", ""};
    case Dialect::kOpenAi:
      break;
  }
  return {};
}

}  // namespace

std::optional<double> metric_value(std::string_view text, std::string_view metric) {
  std::optional<double> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(metric)) continue;
    line.remove_prefix(metric.size());
    if (!line.starts_with('{') && !line.starts_with(' ')) continue;  // a longer name
    // A label may hold anything, a value holds no blank; a timestamp is nobody's here.
    const size_t blank = line.rfind(' ');
    if (blank == std::string_view::npos) continue;
    const std::string_view number = line.substr(blank + 1);
    double value = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc{} || stop != number.data() + number.size()) continue;
    out = out.value_or(0) + value;
  }
  return out;
}

ServerLoad read_server_load(CompletionClient& client) {
  ServerLoad out;
  const HttpReply reply = client.http().get("/metrics");
  if (!reply.is_ok()) return out;
  const MetricNames names = names_of(client.dialect());
  const auto read = [&](std::string_view name) {
    return name.empty() ? -1.0 : metric_value(reply.body, name).value_or(-1);
  };
  out.running = read(names.running);
  out.waiting = read(names.waiting);
  out.cache_usage = read(names.cache_usage);
  out.preemptions = read(names.preemptions);
  return out;
}

LoadWatch::LoadWatch(CompletionClient& client, std::chrono::milliseconds pause) : client_(client) {
  first_ = peaks_ = read_server_load(client_);
  if (first_.running < 0) return;  // nothing to be seen
  thread_ = std::thread([this, pause] {
    constexpr std::chrono::milliseconds kSlice{25};
    auto slept = std::chrono::milliseconds::zero();
    while (!stop_) {
      std::this_thread::sleep_for(kSlice);
      slept += kSlice;
      if (slept < pause) continue;
      slept = std::chrono::milliseconds::zero();
      look();
    }
  });
}

LoadWatch::~LoadWatch() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void LoadWatch::look() {
  try {
    const ServerLoad now = read_server_load(client_);
    peaks_.running = std::max(peaks_.running, now.running);
    peaks_.waiting = std::max(peaks_.waiting, now.waiting);
    peaks_.cache_usage = std::max(peaks_.cache_usage, now.cache_usage);
    peaks_.preemptions = std::max(peaks_.preemptions, now.preemptions);
  } catch (const Error&) {  // busy, or gone: the requests will tell
  }
}

ServerLoad LoadWatch::peaks() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  look();
  ServerLoad out = peaks_;
  if (out.preemptions >= 0) out.preemptions -= std::max(0.0, first_.preemptions);
  return out;
}

}  // namespace kv
