#include "stats/moments.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "stats/check.h"

namespace kv {
namespace {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

void require_two(const char* function, const char* argument, size_t n) {
  require(n >= 2, function, argument, static_cast<double>(n), "at least 2");
}

}  // namespace

MeanEstimate mean_estimate(std::span<const double> values) {
  require_two("mean_estimate", "n", values.size());
  require_finite("mean_estimate", "values", values);
  const double n = static_cast<double>(values.size());
  const double mean = mean_of(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double sd = std::sqrt(squares / (n - 1));
  return {values.size(), mean, sd, sd / std::sqrt(n)};
}

double correlation(std::span<const double> x, std::span<const double> y) {
  require_same_size("correlation", "y", y.size(), "x", x.size());
  const MeanEstimate mx = mean_estimate(x), my = mean_estimate(y);
  require(mx.sd > 0, "correlation", "sd of x", mx.sd, "more than 0");
  require(my.sd > 0, "correlation", "sd of y", my.sd, "more than 0");
  double products = 0;
  for (size_t i = 0; i < x.size(); ++i) products += (x[i] - mx.mean) * (y[i] - my.mean);
  return products / static_cast<double>(x.size() - 1) / (mx.sd * my.sd);
}

ClusteredError clustered_error(std::span<const double> values,
                               std::span<const int64_t> cluster_ids) {
  require_same_size("clustered_error", "cluster_ids", cluster_ids.size(), "values", values.size());
  require_two("clustered_error", "n", values.size());
  require_finite("clustered_error", "values", values);
  const double mean = mean_of(values);
  std::map<int64_t, double> residuals;  // ordered: the sum below must not depend on a hash
  for (size_t i = 0; i < values.size(); ++i) residuals[cluster_ids[i]] += values[i] - mean;
  require_two("clustered_error", "clusters", residuals.size());
  double squares = 0;
  for (const auto& [id, u] : residuals) squares += u * u;
  const double clusters = static_cast<double>(residuals.size());
  const double cr0 = std::sqrt(squares) / static_cast<double>(values.size());
  return {residuals.size(), cr0, cr0 * std::sqrt(clusters / (clusters - 1))};
}

double design_effect(double se_iid, double se_cr1) {
  require(se_iid >= 0 && std::isfinite(se_iid), "design_effect", "se_iid", se_iid,
          "at least 0 and finite");
  require(se_cr1 >= 0 && std::isfinite(se_cr1), "design_effect", "se_cr1", se_cr1,
          "at least 0 and finite");
  if (se_iid == 0) return 1;
  const double ratio = se_cr1 / se_iid;
  return std::max(1.0, ratio * ratio);
}

double percentile(std::vector<double> values, double q) {
  return percentiles(std::move(values), {&q, 1}).front();
}

std::vector<double> percentiles(std::vector<double> values, std::span<const double> qs) {
  require(!values.empty(), "percentiles", "n", 0, "at least 1");
  require_finite("percentiles", "values", values);
  std::sort(values.begin(), values.end());
  std::vector<double> out;
  out.reserve(qs.size());
  for (const double q : qs) {
    require_probability("percentiles", "q", q);
    const double rank = q * static_cast<double>(values.size() - 1);
    const size_t below = static_cast<size_t>(rank);
    const size_t above = std::min(below + 1, values.size() - 1);
    out.push_back(values[below] +
                  (rank - static_cast<double>(below)) * (values[above] - values[below]));
  }
  return out;
}

}  // namespace kv
