#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "endpoint/load.h"

namespace kv {

/// Mean, median, standard deviation (n in the denominator) and 99th percentile.
struct TimeSpread {
  double mean = 0, median = 0, sd = 0, p99 = 0;
};
TimeSpread spread_of(const std::vector<double>& values);

/// Limits that a request keeps or misses; 0: none.
struct Goodput {
  double ttft_ms = 0, tpot_ms = 0, e2el_ms = 0;

  /// Reads "ttft:MS tpot:MS e2el:MS", any of them. Throws ValueError naming what is not understood.
  static Goodput parse(std::string_view text);
  bool has_limits() const { return ttft_ms > 0 || tpot_ms > 0 || e2el_ms > 0; }
};

/// A load's numbers, over the requests that were answered whole (method, systems metrics):
///   ttft   to the first piece with tokens; `itl` gaps between pieces, all requests' together;
///   tpot   (e2e - ttft) / (tokens - 1) of each request;  e2el   to the last piece
struct LoadSummary {
  int64_t completed = 0, failed = 0, input_tokens = 0, output_tokens = 0;
  std::optional<int64_t> good;  // within the limits of a goodput; empty: it has none
  double duration_s = 0;
  TimeSpread ttft_ms, tpot_ms, itl_ms, e2el_ms;
  double sent_late_ms = 0;  // the latest

  double per_second(int64_t count) const {
    return duration_s > 0 ? static_cast<double>(count) / duration_s : 0;
  }
  double output_throughput() const { return per_second(output_tokens); }
};

LoadSummary summarize_load(const LoadResult& result, const Goodput& goodput = {});

/// The keys that `vllm bench serve` writes, and ours beside them. `is_detailed` adds the arrays by
/// request: input_lens, output_lens, ttfts and itls (in seconds, as there), errors.
nlohmann::ordered_json load_json(const LoadResult& result, const LoadSummary& summary,
                                 bool is_detailed);

}  // namespace kv
