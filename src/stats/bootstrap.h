#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "stats/intervals.h"

namespace kv {

/// Replicates to draw. The result depends on seed and replicates, never on threads.
struct BootstrapPlan {
  uint64_t seed = 0;
  int replicates = 10000;
  int threads = 1;
};

/// Gets the drawn units (numbers into all units, a unit may come several times) and returns the
/// statistic. Called from several threads at once.
using ResampleStatistic = std::function<double(std::span<const uint32_t> drawn)>;

/// Bootstrap within strata (buckets): for every replicate, strata[b] units are drawn with
/// replacement among the strata[b] units of bucket b; units are numbered through, bucket after
/// bucket. A unit is a cluster or an independent example. Replicate r draws by below() from the
/// SplitMix64 in state replicate_seed(seed, r). Returns the statistic of every replicate.
/// Throws ValueError for an empty stratum or replicates, threads < 1; passes on what the statistic
/// throws. (Efron & Tibshirani 1993; paired use: Koehn 2004.)
std::vector<double> bootstrap(std::span<const size_t> strata, const ResampleStatistic& statistic,
                              const BootstrapPlan& plan);

/// bootstrap of sum(numerator) / sum(denominator) over the drawn units: the mean difference
/// (denominator = examples of the unit), a recovery ratio (denominator = control's scores).
std::vector<double> bootstrap_ratio(std::span<const double> numerator,
                                    std::span<const double> denominator,
                                    std::span<const size_t> strata, const BootstrapPlan& plan);

/// What the replicates say. p_loss = (1 + number of replicates >= 0) / (R + 1).
struct BootstrapSummary {
  double mean = 0;
  double sd = 0;
  Interval interval;  // percentile interval at the confidence asked for
  double p_loss = 1;
};

/// At least 2 finite replicates, 0 < confidence < 1. The percentile interval is trustworthy from
/// about 100 units per bucket on.
BootstrapSummary summarize_bootstrap(const std::vector<double>& replicates, double confidence);

}  // namespace kv
