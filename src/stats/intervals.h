#pragma once

namespace kv {

/// A closed interval, lo <= hi.
struct Interval {
  double lo = 0;
  double hi = 0;
};

/// z with P(|Z| <= z) = confidence: 0.95 -> 1.95996. 0 < confidence < 1.
double critical_z(double confidence);

/// t with P(|T| <= t) = confidence at df > 0 degrees of freedom (infinity is the normal).
double critical_t(double confidence, double df);

/// estimate +- bound * se; bound a critical z or t, 0 to 1e6; se >= 0.
Interval symmetric_interval(double estimate, double se, double bound);

/// Interval for a proportion from `successes` of n (fractions allowed: counts divided by a design
/// effect), n > 0, bound = critical z, 0 to 1e6:
///   centre = (k/n + z^2/(2n)) / (1 + z^2/n)
///   half   = z/(1 + z^2/n) * sqrt(p (1-p)/n + z^2/(4 n^2)),  p = k/n
/// Stays in [0, 1] and has a width at 0 of n and n of n, where the Wald interval has none
/// (Wilson 1927).
Interval wilson_interval(double successes, double n, double bound);

}  // namespace kv
