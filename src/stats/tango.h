#pragma once

#include "stats/intervals.h"

namespace kv {

/// Paired binary outcomes of n examples: losses = control right, candidate wrong; gains = the
/// reverse. Fractions are allowed (all three divided by a design effect). Delta = (gains -
/// losses)/n.
struct PairedCounts {
  double losses = 0;
  double gains = 0;
  double n = 0;
};

/// Throws ValueError unless n > 0, losses, gains >= 0 and losses + gains <= n (within 1e-9 n, for
/// counts that were divided by a common factor).
void require_counts(const char* function, const PairedCounts& counts);

/// The probability of a loss that is most likely if Delta were `delta0`, in [0, 1].
/// -1 < delta0 < 1.
double tango_loss_probability(const PairedCounts& counts, double delta0);

/// Score statistic for Delta = delta0, -1 < delta0 < 1; falls as delta0 grows; 0 at the estimate.
///   A = 2n;  B = -(b + c) + (2n - c + b) D0;  C = -b D0 (1 - D0)
///   q = (sqrt(B^2 - 4AC) - B) / (2A)
///   T(D0) = (c - b - n D0) / sqrt(n (2q + D0 (1 - D0)))        b losses, c gains
/// T(0) = (c - b)/sqrt(b + c), McNemar's z; 0 without flips. (Tango 1998.)
double tango_statistic(const PairedCounts& counts, double delta0);

/// All delta0 with |T(delta0)| <= bound (bound >= 0: a critical z or t), by bisection to 1e-13.
/// Without flips this is +- z^2/(n + z^2), where a Wald interval would claim certainty.
Interval tango_interval(const PairedCounts& counts, double bound);

}  // namespace kv
