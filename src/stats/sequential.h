#pragma once

#include <span>
#include <vector>

namespace kv {

// Planned looks at information fractions I_k = n_k / n_K, rising, 0 < I_k <= 1, at least 0.005
// apart. Alpha is two-sided throughout; the one-sided error is half of it.

/// Cumulative two-sided error that may be used up at information fraction I, O'Brien-Fleming type:
/// 2 (2 - 2 Phi(z_{1 - alpha/4} / sqrt(I))) (Lan & DeMets 1983).
double spent_error(double fraction, double alpha);

/// Bounds c_k for |Z_k|: an interval built with c_k at look k covers at all looks jointly with
/// probability 1 - alpha, or more if the last fraction is below 1. For looks at unplanned
/// fractions call it again with the fractions as they were. By recursive integration on the score
/// scale, Simpson with 801 nodes, error below 1e-6 (Jennison & Turnbull 2000). Throws ValueError.
std::vector<double> look_bounds(std::span<const double> fractions, double alpha);

/// For given bounds c_k > 0: the two-sided probability, with no shift, of having left
/// [-c_j, c_j] at some look j <= k.
std::vector<double> crossing_probabilities(std::span<const double> fractions,
                                           std::span<const double> bounds);

/// The one-sided level of a p-value test at a look with bound c: 1 - Phi(c).
double nominal_level(double bound);

}  // namespace kv
