#include "stats/intervals.h"

#include <algorithm>
#include <cmath>

#include "stats/check.h"
#include "stats/distributions.h"

namespace kv {
namespace {

void require_bound(const char* function, double bound) {
  require(bound >= 0 && bound <= 1e6, function, "bound", bound, "0 to 1e6");
}

}  // namespace

double critical_z(double confidence) {
  require_open_unit("critical_z", "confidence", confidence);
  return -normal_quantile((1 - confidence) / 2);
}

double critical_t(double confidence, double df) {
  require_open_unit("critical_t", "confidence", confidence);
  return -student_t_quantile((1 - confidence) / 2, df);
}

Interval symmetric_interval(double estimate, double se, double bound) {
  require(std::isfinite(estimate), "symmetric_interval", "estimate", estimate, "a finite number");
  require(se >= 0 && std::isfinite(se), "symmetric_interval", "se", se, "at least 0 and finite");
  require_bound("symmetric_interval", bound);
  return {estimate - bound * se, estimate + bound * se};
}

Interval wilson_interval(double successes, double n, double bound) {
  require(n > 0 && std::isfinite(n), "wilson_interval", "n", n, "more than 0 and finite");
  require(successes >= 0 && successes <= n, "wilson_interval", "successes", successes, "0 to n");
  require_bound("wilson_interval", bound);
  const double p = successes / n, z2 = bound * bound;
  const double centre = (successes + z2 / 2) / (n + z2);
  const double half = bound / (n + z2) * std::sqrt(n * p * (1 - p) + z2 / 4);
  // At 0 of n and n of n one end is exactly 0 or 1; rounding must not push it past the estimate.
  return {std::clamp(centre - half, 0.0, p), std::clamp(centre + half, p, 1.0)};
}

}  // namespace kv
