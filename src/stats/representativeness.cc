#include "stats/representativeness.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "stats/check.h"

namespace kv {
namespace {

double sum_of_counts(std::span<const double> counts) {
  require_finite("total_variation", "counts", counts);
  for (const double c : counts) require(c >= 0, "total_variation", "count", c, "at least 0");
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  require(sum > 0, "total_variation", "sum of counts", sum, "more than 0");
  return sum;
}

std::vector<double> sorted_sample(std::span<const double> sample) {
  require(!sample.empty(), "ks_statistic", "n", 0, "at least 1");
  require_finite("ks_statistic", "sample", sample);
  std::vector<double> out(sample.begin(), sample.end());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

double exceedance_p(int64_t calibrated, int64_t evaluated, int64_t exceeding) {
  const double n = static_cast<double>(calibrated), m = static_cast<double>(evaluated);
  const double k = static_cast<double>(exceeding);
  require(calibrated >= 1, "exceedance_p", "calibrated", n, "at least 1");
  require(evaluated >= 0, "exceedance_p", "evaluated", m, "at least 0");
  require(exceeding >= 0 && exceeding <= evaluated, "exceedance_p", "exceeding", k,
          "0 to evaluated");
  // The ratio of the two binomial coefficients, factor by factor: no cancellation.
  double p = 1;
  for (double i = 0; i < k; ++i) p *= (m - i) / (n + m - i);
  return p;
}

double total_variation(std::span<const double> counts_a, std::span<const double> counts_b) {
  require_same_size("total_variation", "counts_b", counts_b.size(), "counts_a", counts_a.size());
  const double sum_a = sum_of_counts(counts_a), sum_b = sum_of_counts(counts_b);
  double gap = 0;
  for (size_t i = 0; i < counts_a.size(); ++i) {
    gap += std::abs(counts_a[i] / sum_a - counts_b[i] / sum_b);
  }
  return 0.5 * gap;
}

double ks_statistic(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> x = sorted_sample(a), y = sorted_sample(b);
  double largest = 0;
  size_t i = 0, j = 0;
  while (i < x.size() && j < y.size()) {
    const double value = std::min(x[i], y[j]);
    while (i < x.size() && x[i] == value) ++i;
    while (j < y.size() && y[j] == value) ++j;
    const double share_x = static_cast<double>(i) / static_cast<double>(x.size());
    const double share_y = static_cast<double>(j) / static_cast<double>(y.size());
    largest = std::max(largest, std::abs(share_x - share_y));
  }
  return largest;
}

double ks_critical_95(size_t n, size_t m) {
  require(n >= 1, "ks_critical_95", "n", static_cast<double>(n), "at least 1");
  require(m >= 1, "ks_critical_95", "m", static_cast<double>(m), "at least 1");
  const double a = static_cast<double>(n), b = static_cast<double>(m);
  return 1.358 * std::sqrt((a + b) / (a * b));
}

}  // namespace kv
