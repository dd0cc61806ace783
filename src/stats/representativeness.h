#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kv {

/// If calibration and evaluation examples are exchangeable: the chance that at least `exceeding` of
/// `evaluated` examples exceed the largest of `calibrated` ones, C(m, k) / C(n + m, k) with n
/// calibrated, m evaluated, k exceeding. Needs no distribution. calibrated >= 1,
/// 0 <= exceeding <= evaluated; else ValueError.
double exceedance_p(int64_t calibrated, int64_t evaluated, int64_t exceeding);

/// Total variation between two histograms over the same bins: 0.5 sum |p - q| of their shares, 0 to
/// 1. Counts >= 0, each histogram with a positive sum; else ValueError.
double total_variation(std::span<const double> counts_a, std::span<const double> counts_b);

/// Two-sample Kolmogorov-Smirnov statistic: the largest gap between the two empirical distribution
/// functions, 0 to 1. Both samples non-empty and finite; else ValueError.
double ks_statistic(std::span<const double> a, std::span<const double> b);

/// The value it stays below with probability 0.95 if both come from one distribution:
/// 1.358 sqrt((n + m) / (n m)) (asymptotic).
double ks_critical_95(size_t n, size_t m);

}  // namespace kv
