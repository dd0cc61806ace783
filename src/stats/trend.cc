#include "stats/trend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "stats/check.h"
#include "stats/distributions.h"
#include "stats/permutation.h"

namespace kv {
namespace {

std::vector<double> weights_of(const char* function, std::span<const double> y,
                               std::span<const double> variances) {
  require_same_size(function, "variances", variances.size(), "y", y.size());
  require(y.size() >= 2, function, "buckets", static_cast<double>(y.size()), "at least 2");
  require_finite(function, "y", y);
  std::vector<double> out;
  for (const double v : variances) {
    require(v > 0 && std::isfinite(v), function, "variance", v, "more than 0 and finite");
    out.push_back(1 / v);
  }
  return out;
}

double weighted_mean(std::span<const double> w, std::span<const double> y) {
  double sum = 0, total = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    sum += w[i] * y[i];
    total += w[i];
  }
  return sum / total;
}

}  // namespace

WeightedTrend weighted_trend(std::span<const double> x, std::span<const double> y,
                             std::span<const double> variances) {
  const std::vector<double> w = weights_of("weighted_trend", y, variances);
  require_same_size("weighted_trend", "x", x.size(), "y", y.size());
  require_finite("weighted_trend", "x", x);
  const double xbar = weighted_mean(w, x), ybar = weighted_mean(w, y);
  double sxx = 0, sxy = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    sxx += w[i] * (x[i] - xbar) * (x[i] - xbar);
    sxy += w[i] * (x[i] - xbar) * (y[i] - ybar);
  }
  require(sxx > 0, "weighted_trend", "spread of x", sxx, "more than 0");
  WeightedTrend out;
  out.slope = sxy / sxx;
  out.se = 1 / std::sqrt(sxx);
  out.z = out.slope / out.se;
  out.p_loss = normal_cdf(out.z);
  return out;
}

Heterogeneity heterogeneity(std::span<const double> y, std::span<const double> variances) {
  const std::vector<double> w = weights_of("heterogeneity", y, variances);
  const double df = static_cast<double>(y.size() - 1);
  Heterogeneity out;
  out.pooled = weighted_mean(w, y);
  double total = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    out.q += w[i] * (y[i] - out.pooled) * (y[i] - out.pooled);
    total += w[i];
  }
  out.se = 1 / std::sqrt(total);
  out.z = out.pooled / out.se;
  out.p_loss = normal_cdf(out.z);
  out.q_p = chi_square_upper(out.q, df);
  out.i_squared = out.q > df ? 1 - df / out.q : 0;
  return out;
}

SignTest sign_test(std::span<const double> differences) {
  require_finite("sign_test", "differences", differences);
  SignTest out;
  for (const double d : differences) {
    out.negative += d < 0;
    out.nonzero += d != 0;
  }
  out.p_loss =
      binomial_upper(static_cast<double>(out.negative), static_cast<double>(out.nonzero), 0.5);
  return out;
}

double length_curve_auc(std::span<const double> lengths, std::span<const double> scores) {
  require_same_size("length_curve_auc", "scores", scores.size(), "lengths", lengths.size());
  require(lengths.size() >= 2, "length_curve_auc", "n", static_cast<double>(lengths.size()),
          "at least 2");
  require_finite("length_curve_auc", "lengths", lengths);
  require_finite("length_curve_auc", "scores", scores);
  double area = 0;
  for (size_t i = 1; i < lengths.size(); ++i) {
    const double step = lengths[i] - lengths[i - 1];
    require(step > 0, "length_curve_auc", "length", lengths[i], "more than the one before");
    area += step * (scores[i] + scores[i - 1]) / 2;
  }
  return area / (lengths.back() - lengths.front());
}

std::string_view name(ShiftType type) {
  switch (type) {
    case ShiftType::kNone:
      return "NONE";
    case ShiftType::kLengthGrowing:
      return "LENGTH_GROWING";
    case ShiftType::kUniform:
      return "UNIFORM";
    case ShiftType::kLocalised:
      return "LOCALISED";
  }
  return "?";
}

ShiftType shift_type_of_means(std::span<const double> x, std::span<const double> differences,
                              double alpha) {
  require_open_unit("shift_type_of_means", "alpha", alpha);
  if (permutation_trend(x, differences).p <= alpha) return ShiftType::kLengthGrowing;
  if (sign_test(differences).p_loss <= alpha) return ShiftType::kUniform;
  return ShiftType::kNone;
}

}  // namespace kv
