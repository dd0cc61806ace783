#include "stats/bootstrap.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <thread>

#include "stats/check.h"
#include "stats/moments.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

/// Draws one replicate into `drawn`, which has room for every unit.
void draw(std::span<const size_t> strata, SplitMix64 random, std::span<uint32_t> drawn) {
  size_t first = 0;
  for (const size_t size : strata) {
    for (size_t i = 0; i < size; ++i) {
      drawn[first + i] = static_cast<uint32_t>(first + random.below(size));
    }
    first += size;
  }
}

size_t count_units(std::span<const size_t> strata) {
  require(!strata.empty(), "bootstrap", "strata", 0, "at least 1");
  size_t units = 0;
  for (const size_t size : strata) {
    require(size > 0, "bootstrap", "stratum size", 0, "at least 1");
    units += size;
  }
  require(units <= std::numeric_limits<uint32_t>::max(), "bootstrap", "units",
          static_cast<double>(units), "less than 2^32");
  return units;
}

}  // namespace

std::vector<double> bootstrap(std::span<const size_t> strata, const ResampleStatistic& statistic,
                              const BootstrapPlan& plan) {
  require(plan.replicates >= 1, "bootstrap", "replicates", plan.replicates, "at least 1");
  require(plan.threads >= 1, "bootstrap", "threads", plan.threads, "at least 1");
  const size_t units = count_units(strata);
  const size_t replicates = static_cast<size_t>(plan.replicates);
  const size_t threads = std::min(static_cast<size_t>(plan.threads), replicates);
  std::vector<double> out(replicates);
  std::vector<std::exception_ptr> failures(threads);
  const auto work = [&](size_t worker) {
    try {
      std::vector<uint32_t> drawn(units);
      for (size_t r = worker; r < replicates; r += threads) {
        draw(strata, SplitMix64(SplitMix64::replicate_seed(plan.seed, r)), drawn);
        out[r] = statistic(drawn);
      }
    } catch (...) {
      failures[worker] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
    work(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return out;
}

std::vector<double> bootstrap_ratio(std::span<const double> numerator,
                                    std::span<const double> denominator,
                                    std::span<const size_t> strata, const BootstrapPlan& plan) {
  require_same_size("bootstrap_ratio", "denominator", denominator.size(), "numerator",
                    numerator.size());
  require_same_size("bootstrap_ratio", "numerator", numerator.size(), "the units of all strata",
                    count_units(strata));
  require_finite("bootstrap_ratio", "numerator", numerator);
  require_finite("bootstrap_ratio", "denominator", denominator);
  const auto ratio = [&](std::span<const uint32_t> drawn) {
    double above = 0, below = 0;
    for (const uint32_t unit : drawn) {
      above += numerator[unit];
      below += denominator[unit];
    }
    return above / below;
  };
  return bootstrap(strata, ratio, plan);
}

BootstrapSummary summarize_bootstrap(const std::vector<double>& replicates, double confidence) {
  require_open_unit("summarize_bootstrap", "confidence", confidence);
  const MeanEstimate moments = mean_estimate(replicates);
  const double tail = (1 - confidence) / 2;
  const double qs[] = {tail, 1 - tail};
  const std::vector<double> ends = percentiles(replicates, qs);
  const auto not_below_zero =
      std::count_if(replicates.begin(), replicates.end(), [](double s) { return s >= 0; });
  return {moments.mean,
          moments.sd,
          {ends[0], ends[1]},
          static_cast<double>(1 + not_below_zero) / static_cast<double>(replicates.size() + 1)};
}

}  // namespace kv
