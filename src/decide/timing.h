#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decide/options.h"
#include "decide/verdict.h"
#include "evaluate/record.h"
#include "stats/intervals.h"

namespace kv {

/// Median over an arm's runs by median over the control's, with the percentile interval of a
/// bootstrap over runs, at 95 %.
struct TimeRatio {
  double ratio = 1;
  Interval interval{1, 1};
};

/// An arm's speed beside the control's at one length.
struct TimingRow {
  std::string bucket;
  double context_tokens = 0;
  double share = 1;  // of the traffic
  int64_t runs_control = 0, runs_arm = 0;
  TimeRatio ttft, itl, throughput;
};

/// What timing records of the engine that serves say of an arm (method 5.2 and S_PASS of 6.3).
struct TimingJudgement {
  std::vector<TimingRow> rows;
  // Tokens, from three timed lengths on, traffic or not; infinite = never.
  std::optional<double> break_even;
  double median_context = 0;  // of the traffic, tokens
  std::string noisy;          // why the timing proves nothing; empty if it does
  bool has_gain = false;      // ITL or throughput better by gain.latency_min, shown
  std::string failure;        // "PREFILL_HEAVY", "KERNEL"; empty if no harm limit is exceeded
  std::vector<Reason> reasons;
};

/// Nothing when there is no timing record of the arm. Buckets without a record of the arm or of the
/// control are named as noisy: a gate that does not see a bucket does not open.
std::optional<TimingJudgement> judge_timing(const DecideOptions& options,
                                            std::span<const TimingRecord> records,
                                            const std::string& arm,
                                            const std::vector<std::string>& buckets);

}  // namespace kv
