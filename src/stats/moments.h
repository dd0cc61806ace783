#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kv {

/// Mean of n values with sd (n - 1 in the denominator) and se = sd / sqrt(n), in the values' unit.
struct MeanEstimate {
  size_t n = 0;
  double mean = 0;
  double sd = 0;
  double se = 0;
};

/// n >= 2 finite values, else ValueError. Two passes, so a large mean costs no digits of sd.
MeanEstimate mean_estimate(std::span<const double> values);

/// Pearson correlation of two equally long series, n >= 2. Throws ValueError if one is constant.
double correlation(std::span<const double> x, std::span<const double> y);

/// Standard errors of a mean whose values fall into clusters (documents, sequences):
/// u_g = sum of (value - mean) over cluster g;  cr0 = sqrt(sum u_g^2) / n;
/// cr1 = cr0 * sqrt(G / (G - 1)). Interval: mean +- t_{G-1} * cr1 (Miller 2024).
struct ClusteredError {
  size_t clusters = 0;
  double cr0 = 0;
  double cr1 = 0;
};

/// cluster_ids names the cluster of every value; any numbers, in any order. At least 2 clusters,
/// else ValueError: one cluster says nothing about the spread between clusters.
ClusteredError clustered_error(std::span<const double> values,
                               std::span<const int64_t> cluster_ids);

/// deff = max(1, se_cr1^2 / se_iid^2): how many clustered examples count as one independent one.
/// 1 if se_iid is 0 (no spread to compare).
double design_effect(double se_iid, double se_cr1);

/// The q-quantile (0 <= q <= 1) of finite values, linear between order statistics: rank
/// h = q (n - 1), value = x[floor h] + frac(h) (x[floor h + 1] - x[floor h]). n >= 1.
double percentile(std::vector<double> values, double q);

/// The same for several q, sorting once. Returns one value per q.
std::vector<double> percentiles(std::vector<double> values, std::span<const double> qs);

}  // namespace kv
