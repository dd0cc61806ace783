#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>

#include "endpoint/completion.h"

namespace kv {

/// What a server says of its load in its metrics; -1: it does not say.
struct ServerLoad {
  double running = -1, waiting = -1;  // requests, now
  double cache_usage = -1;            // share of the cache, now
  double preemptions = -1;            // requests thrown out of the cache, since it was started
};

/// From /metrics; all -1 where there is no such route.
ServerLoad read_server_load(CompletionClient& client);

/// The sum of a metric's samples in the Prometheus text format; nothing when it is not there.
std::optional<double> metric_value(std::string_view text, std::string_view metric);

/// Watches a server's load while requests are under way, four times a second on a thread of its
/// own. A server that cannot be asked meanwhile is not watched.
class LoadWatch {
 public:
  /// Looks every `pause`: as rarely as what is wanted allows, since a look costs the server time.
  explicit LoadWatch(CompletionClient& client,
                     std::chrono::milliseconds pause = std::chrono::milliseconds(250));
  ~LoadWatch();
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

  /// The largest that was seen; `preemptions` since the watch began. Ends the watch.
  ServerLoad peaks();

 private:
  void look();
  CompletionClient& client_;
  ServerLoad first_, peaks_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace kv
