#include "stats/tango.h"

#include <algorithm>
#include <cmath>

#include "stats/check.h"

namespace kv {
namespace {

/// q for delta0 >= 0, where C <= 0: both forms of the root avoid the difference of near-equal
/// terms.
double loss_probability_above_zero(const PairedCounts& p, double delta0) {
  const double a = 2 * p.n;
  const double b = -(p.losses + p.gains) + (2 * p.n - p.gains + p.losses) * delta0;
  const double c = -p.losses * delta0 * (1 - delta0);
  const double root = std::sqrt(b * b - 4 * a * c);
  if (b <= 0) return (root - b) / (2 * a);
  return -2 * c / (root + b);
}

/// T for checked counts. A negative delta0 is the positive one with losses and gains swapped:
/// there every term of the variance is positive.
double statistic(const PairedCounts& p, double delta0) {
  if (delta0 < 0) return -statistic({p.gains, p.losses, p.n}, -delta0);
  const double q = loss_probability_above_zero(p, delta0);
  const double variance = p.n * (2 * q + delta0 * (1 - delta0));
  const double distance = p.gains - p.losses - p.n * delta0;
  if (variance > 0) return distance / std::sqrt(variance);
  return 0;  // delta0 = 0 without flips: nothing speaks for either side
}

void require_delta(const char* function, double delta0) {
  require(delta0 > -1 && delta0 < 1, function, "delta0", delta0, "more than -1 and less than 1");
}

/// The end of the interval above the estimate: the largest delta0 with T >= -bound.
double upper_end(const PairedCounts& p, double bound) {
  double inside = std::min(1.0, (p.gains - p.losses) / p.n), outside = 1;
  while (outside - inside > 1e-13) {
    const double middle = inside + (outside - inside) / 2;
    (statistic(p, middle) >= -bound ? inside : outside) = middle;
  }
  return outside;
}

}  // namespace

void require_counts(const char* function, const PairedCounts& p) {
  require(p.n > 0 && std::isfinite(p.n), function, "n", p.n, "more than 0 and finite");
  require(p.losses >= 0, function, "losses", p.losses, "at least 0");
  require(p.gains >= 0, function, "gains", p.gains, "at least 0");
  const double flips = p.losses + p.gains;
  require(flips <= p.n * (1 + 1e-9), function, "losses + gains", flips, "at most n");
}

double tango_loss_probability(const PairedCounts& counts, double delta0) {
  require_counts("tango_loss_probability", counts);
  require_delta("tango_loss_probability", delta0);
  if (delta0 >= 0) return loss_probability_above_zero(counts, delta0);
  // Swapped, the root is the probability of a gain, and loss = gain - delta0.
  return loss_probability_above_zero({counts.gains, counts.losses, counts.n}, -delta0) - delta0;
}

double tango_statistic(const PairedCounts& counts, double delta0) {
  require_counts("tango_statistic", counts);
  require_delta("tango_statistic", delta0);
  return statistic(counts, delta0);
}

Interval tango_interval(const PairedCounts& counts, double bound) {
  require_counts("tango_interval", counts);
  require(bound >= 0 && std::isfinite(bound), "tango_interval", "bound", bound,
          "at least 0 and finite");
  const PairedCounts swapped{counts.gains, counts.losses, counts.n};
  return {-upper_end(swapped, bound), upper_end(counts, bound)};
}

}  // namespace kv
