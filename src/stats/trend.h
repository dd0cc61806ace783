#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace kv {

/// Weighted least squares of bucket differences y on x (log2 of the bucket midpoint), weights 1/v:
///   slope = sum w (x - xbar)(y - ybar) / Sxx,  Sxx = sum w (x - xbar)^2,  se = 1/sqrt(Sxx)
/// p_loss = Phi(slope / se): small if the loss grows with length.
struct WeightedTrend {
  double slope = 0;  // score per doubling of the length
  double se = 0;
  double z = 0;
  double p_loss = 1;
};

/// x, y, variances [B], B >= 2, variances > 0, x not constant; else ValueError.
WeightedTrend weighted_trend(std::span<const double> x, std::span<const double> y,
                             std::span<const double> variances);

/// Inverse-variance mean of bucket differences and how far the buckets disagree:
///   q = sum w (y - pooled)^2, chi-square with B - 1 degrees of freedom;
///   i_squared = max(0, 1 - (B - 1)/q), the share of the spread that is not noise.
struct Heterogeneity {
  double pooled = 0;
  double se = 0;
  double z = 0;
  double p_loss = 1;  // Phi(z)
  double q = 0;
  double q_p = 1;
  double i_squared = 0;
};

/// y, variances [B], B >= 2, variances > 0; else ValueError.
Heterogeneity heterogeneity(std::span<const double> y, std::span<const double> variances);

/// Exact sign test of bucket differences: negatives among the non-zero ones,
/// p_loss = P(X >= negative), X ~ Bin(nonzero, 1/2); 1 if all are zero.
struct SignTest {
  size_t negative = 0;
  size_t nonzero = 0;
  double p_loss = 1;
};
SignTest sign_test(std::span<const double> differences);

/// Area under the length curve: trapezoid over the linear token axis divided by the length range,
/// in the unit of `scores`. Lengths rise, at least 2. A summary only: it can hide a loss in one
/// bucket.
double length_curve_auc(std::span<const double> lengths, std::span<const double> scores);

enum class ShiftType { kNone, kLengthGrowing, kUniform, kLocalised };

/// "NONE", "LENGTH_GROWING", "UNIFORM", "LOCALISED".
std::string_view name(ShiftType type);

/// The type of shift when only bucket means are known (published tables): LENGTH_GROWING if the
/// exact permutation trend rejects at alpha, else UNIFORM if the sign test does, else NONE. Low
/// power: fit for a remark, never for an acceptance. x as in weighted_trend.
ShiftType shift_type_of_means(std::span<const double> x, std::span<const double> differences,
                              double alpha);

}  // namespace kv
