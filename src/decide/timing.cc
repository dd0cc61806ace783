#include "decide/timing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "decide/evidence.h"
#include "decide/quality.h"
#include "stats/bootstrap.h"
#include "stats/line_fit.h"
#include "stats/moments.h"

namespace kv {
namespace {

using Metric = double TimingRecord::*;

/// One arm's records at one length, one for each run.
using Runs = std::vector<const TimingRecord*>;

Runs runs_of(std::span<const TimingRecord> records, const std::string& arm,
             const std::string& bucket) {
  Runs out;
  for (const TimingRecord& record : records) {
    if (record.arm != arm || record.bucket != bucket) continue;
    // A run that is recorded twice is no second run.
    const bool is_known = std::ranges::any_of(
        out, [&](const TimingRecord* known) { return known->run == record.run; });
    if (!is_known) out.push_back(&record);
  }
  return out;
}

std::vector<double> values(const Runs& runs, Metric metric) {
  std::vector<double> out;
  for (const TimingRecord* run : runs) out.push_back(run->*metric);
  return out;
}

TimeRatio ratio_of(const Runs& arm, const Runs& control, Metric metric) {
  const std::vector<double> over = values(arm, metric), under = values(control, metric);
  const size_t strata[] = {over.size(), under.size()};
  const auto statistic = [&](std::span<const uint32_t> drawn) {
    std::vector<double> above, below;
    for (const uint32_t unit : drawn) {
      unit < over.size() ? above.push_back(over[unit]) : below.push_back(under[unit - over.size()]);
    }
    return percentile(above, 0.5) / percentile(below, 0.5);
  };
  constexpr BootstrapPlan kPlan{.seed = 1, .replicates = 2000, .threads = 1};
  return {percentile(over, 0.5) / percentile(under, 0.5),
          summarize_bootstrap(bootstrap(strata, statistic, kPlan), 0.95).interval};
}

std::string text_of(const TimeRatio& ratio) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.ratio, ratio.interval.lo, ratio.interval.hi);
}

double mean_context(const Runs& runs) {
  double sum = 0;
  for (const TimingRecord* run : runs) sum += static_cast<double>(run->context_tokens);
  return sum / static_cast<double>(runs.size());
}

TimingRow row_of(const std::string& bucket, double share, const Runs& arm, const Runs& control) {
  return {.bucket = bucket,
          .context_tokens = mean_context(control),
          .share = share,
          .runs_control = std::ssize(control),
          .runs_arm = std::ssize(arm),
          .ttft = ratio_of(arm, control, &TimingRecord::ttft_ms),
          .itl = ratio_of(arm, control, &TimingRecord::itl_ms),
          .throughput = ratio_of(arm, control, &TimingRecord::output_throughput)};
}

std::string too_few_runs(const std::string& bucket, const Runs& runs, std::string_view arm) {
  if (std::ssize(runs) >= thresholds::kTimingRuns) return "";
  return fmt::format("bucket {}: {} timed runs of {}, {} are needed", bucket, runs.size(), arm,
                     thresholds::kTimingRuns);
}

/// Why the control beside itself shows that the timing cannot be trusted to a few per cent.
std::string noise_of(const std::string& bucket, const Runs& repeat, const Runs& control) {
  if (const std::string trouble = too_few_runs(bucket, repeat, kControlRepeat); !trouble.empty()) {
    return trouble;
  }
  const std::pair<const char*, Metric> metrics[] = {
      {"TTFT", &TimingRecord::ttft_ms},
      {"ITL", &TimingRecord::itl_ms},
      {"output throughput", &TimingRecord::output_throughput}};
  for (const auto& [label, metric] : metrics) {
    const TimeRatio ratio = ratio_of(repeat, control, metric);
    const Interval& i = ratio.interval;
    const bool holds_one = i.lo <= 1 && i.hi >= 1;
    const bool is_narrow =
        i.lo >= 1 - thresholds::kTimingNoise && i.hi <= 1 + thresholds::kTimingNoise;
    if (holds_one && is_narrow) continue;
    return fmt::format("bucket {}: {} of the control beside itself {}: not within {:.4g} % of 1",
                       bucket, label, text_of(ratio), 100 * thresholds::kTimingNoise);
  }
  return "";
}

/// The length that half of the traffic lies below.
double median_context(const std::vector<TimingRow>& rows) {
  std::vector<TimingRow> sorted = rows;
  std::ranges::sort(sorted, {}, &TimingRow::context_tokens);
  double total = 0, below = 0;
  for (const TimingRow& row : sorted) total += row.share;
  for (const TimingRow& row : sorted) {
    below += row.share;
    if (2 * below >= total) return row.context_tokens;
  }
  return 0;
}

/// Straight lines of the median ITL over the length, one for each arm, through all lengths that
/// were timed often enough: a sweep may go beyond the traffic's buckets.
std::optional<double> fitted_break_even(std::span<const TimingRecord> records,
                                        const std::string& arm) {
  std::vector<double> x, control, candidate;
  std::set<std::string> lengths;
  for (const TimingRecord& record : records) lengths.insert(record.bucket);
  const auto itl = [](const Runs& runs) {
    return percentile(values(runs, &TimingRecord::itl_ms), 0.5);
  };
  for (const std::string& length : lengths) {
    const Runs of_control = runs_of(records, std::string(kControlArm), length),
               of_arm = runs_of(records, arm, length);
    if (std::min(std::ssize(of_control), std::ssize(of_arm)) < thresholds::kTimingRuns) continue;
    x.push_back(mean_context(of_control));
    control.push_back(itl(of_control));
    candidate.push_back(itl(of_arm));
  }
  if (x.size() < 3 || std::ranges::min(x) == std::ranges::max(x)) return std::nullopt;
  return break_even(fit_line(x, control), fit_line(x, candidate));
}

/// Harm counts where there is traffic worth mentioning.
void judge_harm(const DecideOptions& options, const std::string& arm, TimingJudgement& out) {
  double total = 0;
  for (const TimingRow& row : out.rows) total += row.share;
  bool ttft_fails = false, itl_fails = false;
  for (const TimingRow& row : out.rows) {
    const bool counts = row.share >= thresholds::kHarmTrafficShare * total;
    const bool is_slow_to_start = counts && row.ttft.ratio > options.ttft_max;
    const bool is_slow = counts && row.itl.ratio > options.itl_max;
    ttft_fails |= is_slow_to_start;
    itl_fails |= is_slow;
    out.reasons.push_back(
        {"TIMING", fmt::format("timing/{}/{}", arm, row.bucket),
         fmt::format("{} at {}: TTFT {} (at most {:.4g}), ITL {} (at most {:.4g}), output "
                     "throughput {}; {} and {} runs{}",
                     arm, row.bucket, text_of(row.ttft), options.ttft_max, text_of(row.itl),
                     options.itl_max, text_of(row.throughput), row.runs_arm, row.runs_control,
                     is_slow_to_start || is_slow ? ": harm" : "")});
  }
  if (itl_fails) {
    out.failure = "KERNEL";
  } else if (ttft_fails) {
    out.failure = "PREFILL_HEAVY";
  }
}

/// Better at one length and, by the harm limits, nowhere worse.
bool is_faster(const DecideOptions& options, const TimingRow& row) {
  const bool by_itl = row.itl.ratio <= 1 - options.latency_gain_min && row.itl.interval.hi < 1;
  const bool by_throughput =
      row.throughput.ratio >= 1 + options.latency_gain_min && row.throughput.interval.lo > 1;
  return by_itl || by_throughput;
}

}  // namespace

std::optional<TimingJudgement> judge_timing(const DecideOptions& options,
                                            std::span<const TimingRecord> records,
                                            const std::string& arm,
                                            const std::vector<std::string>& buckets) {
  if (std::ranges::find(records, arm, &TimingRecord::arm) == records.end()) return std::nullopt;
  TimingJudgement out;
  const std::string control(kControlArm), repeat(kControlRepeat);
  for (const std::string& bucket : buckets) {
    const Runs of_control = runs_of(records, control, bucket),
               of_arm = runs_of(records, arm, bucket);
    std::string trouble = too_few_runs(bucket, of_control, control);
    if (trouble.empty()) trouble = too_few_runs(bucket, of_arm, arm);
    if (trouble.empty()) {
      trouble = noise_of(bucket, runs_of(records, repeat, bucket), of_control);
      out.rows.push_back(row_of(bucket, traffic_share(options, bucket), of_arm, of_control));
    }
    if (out.noisy.empty()) out.noisy = trouble;
  }
  judge_harm(options, arm, out);
  out.has_gain =
      std::ranges::any_of(out.rows, [&](const TimingRow& row) { return is_faster(options, row); });
  out.median_context = median_context(out.rows);
  out.break_even = fitted_break_even(records, arm);
  return out;
}

}  // namespace kv
