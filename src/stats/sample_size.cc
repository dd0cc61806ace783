#include "stats/sample_size.h"

#include <cmath>

#include "stats/check.h"
#include "stats/distributions.h"

namespace kv {
namespace {

double upper_z(double alpha) { return -normal_quantile(alpha); }

double squared_sum(double a, double b) { return (a + b) * (a + b); }

void require_levels(const char* function, double alpha, double power) {
  require_open_unit(function, "alpha", alpha);
  require_open_unit(function, "power", power);
}

void require_positive(const char* function, const char* argument, double value) {
  require(value > 0 && std::isfinite(value), function, argument, value, "more than 0 and finite");
}

/// Variance of one paired difference, after checking what the two non-inferiority functions share.
double difference_variance(const char* function, double discordance, double delta,
                           double true_diff) {
  require(discordance > 0 && discordance <= 1, function, "discordance", discordance,
          "more than 0 and at most 1");
  require_open_unit(function, "delta", delta);
  require(delta + true_diff > 0 && true_diff < 1, function, "true_diff", true_diff,
          "more than -delta and less than 1");
  const double variance = discordance - true_diff * true_diff;
  require(variance > 0, function, "discordance", discordance, "more than true_diff squared");
  return variance;
}

}  // namespace

double non_inferiority_n(double discordance, double delta, double true_diff, double alpha,
                         double power) {
  const double variance = difference_variance("non_inferiority_n", discordance, delta, true_diff);
  require_levels("non_inferiority_n", alpha, power);
  const double distance = delta + true_diff;
  return squared_sum(upper_z(alpha), normal_quantile(power)) * variance / (distance * distance);
}

double non_inferiority_power(double n, double discordance, double delta, double true_diff,
                             double alpha) {
  const double variance =
      difference_variance("non_inferiority_power", discordance, delta, true_diff);
  require_positive("non_inferiority_power", "n", n);
  require_open_unit("non_inferiority_power", "alpha", alpha);
  return normal_cdf((delta + true_diff) * std::sqrt(n / variance) - upper_z(alpha));
}

double equivalence_n(double variance, double delta, double alpha, double power) {
  require_positive("equivalence_n", "variance", variance);
  require_positive("equivalence_n", "delta", delta);
  require_levels("equivalence_n", alpha, power);
  return squared_sum(upper_z(alpha), normal_quantile((1 + power) / 2)) * variance / (delta * delta);
}

double detection_n(double variance, double true_diff, double alpha, double power) {
  require_positive("detection_n", "variance", variance);
  require(true_diff != 0 && std::isfinite(true_diff), "detection_n", "true_diff", true_diff,
          "a finite number other than 0");
  require_levels("detection_n", alpha, power);
  return squared_sum(upper_z(alpha), normal_quantile(power)) * variance / (true_diff * true_diff);
}

double detectable_difference(double variance, double n, double alpha, double power) {
  require_positive("detectable_difference", "variance", variance);
  require_positive("detectable_difference", "n", n);
  require_levels("detectable_difference", alpha, power);
  return std::sqrt(squared_sum(upper_z(alpha), normal_quantile(power)) * variance / n);
}

double zero_flip_n(double delta, double alpha) {
  require_open_unit("zero_flip_n", "delta", delta);
  require_open_unit("zero_flip_n", "alpha", alpha);
  return upper_z(alpha) * upper_z(alpha) * (1 - delta) / delta;
}

double power_per_bucket(double power, int buckets) {
  require_open_unit("power_per_bucket", "power", power);
  require(buckets >= 1, "power_per_bucket", "buckets", buckets, "at least 1");
  return std::pow(power, 1.0 / buckets);
}

}  // namespace kv
