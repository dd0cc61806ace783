#include "decide/sample_plan.h"

#include <algorithm>
#include <cmath>

#include "decide/thresholds.h"
#include "stats/intervals.h"
#include "stats/sample_size.h"

namespace kv {
namespace {

/// Upper bound of the flip rate of `flips` among `n`, both divided by the design effect.
double flip_rate_bound(double flips, double n) {
  return wilson_interval(flips, n, critical_z(thresholds::kPlanConfidence)).hi;
}

struct Spread {
  double variance = 0;  // of one difference
  double deff = 1;
};

Spread spread_of(std::span<const PairedSummary> buckets) {
  double n = 0, n_effective = 0, flips = 0, squares = 0;
  bool is_binary = true;
  for (const PairedSummary& bucket : buckets) {
    const double size = static_cast<double>(bucket.n);
    n += size;
    n_effective += size / bucket.deff;
    flips += static_cast<double>(bucket.losses + bucket.gains) / bucket.deff;
    squares += size * bucket.sd * bucket.sd;
    is_binary &= bucket.is_binary;
  }
  const double variance =
      is_binary || flips == 0 ? flip_rate_bound(flips, n_effective) : squares / n;
  return {variance, n / n_effective};
}

double non_inferior_questions(const SamplePlan& plan, Spread spread, double margin) {
  const double variance = std::max(spread.variance, plan.least_flips);
  const double n = std::max(non_inferiority_n(variance, margin, 0, plan.alpha, plan.power),
                            zero_flip_n(margin, plan.alpha));
  return std::ceil(n * spread.deff);
}

}  // namespace

double SamplePlan::questions(const PairedSummary& bucket, double margin) const {
  return non_inferior_questions(*this, spread_of({&bucket, 1}), margin);
}

double SamplePlan::questions_pooled(std::span<const PairedSummary> buckets, double margin) const {
  return std::ceil(non_inferior_questions(*this, spread_of(buckets), margin) /
                   static_cast<double>(buckets.size()));
}

double SamplePlan::questions_to_detect(std::span<const PairedSummary> buckets, double diff) const {
  const Spread spread = spread_of(buckets);
  const double variance = std::max(spread.variance, least_flips);
  return std::ceil(detection_n(variance, diff, alpha, power) * spread.deff /
                   static_cast<double>(buckets.size()));
}

}  // namespace kv
