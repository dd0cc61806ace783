#pragma once

namespace kv {

// How many examples. Every n is returned as a real number, as the formula gives it; round up.
// Alpha is one-sided unless the name of the argument says two_sided. Arguments outside their range
// throw ValueError. (Normal approximation; Miller 2024.)

/// Non-inferiority of a binary score with P(flip) = discordance (or variance of the difference):
/// n = (z_{1-alpha} + z_{power})^2 (discordance - D^2) / (delta + D)^2, D = true_diff, delta > 0,
/// delta + D > 0, discordance > D^2. Take the larger of this and zero_flip_n.
double non_inferiority_n(double discordance, double delta, double true_diff, double alpha,
                         double power);

/// Power of n examples for the same question: Phi((delta + D) sqrt(n / (discordance - D^2)) -
/// z_{1-alpha}).
double non_inferiority_power(double n, double discordance, double delta, double true_diff,
                             double alpha);

/// Equivalence at a true difference of 0: n = (z_{1-alpha} + z_{(1+power)/2})^2 variance / delta^2.
double equivalence_n(double variance, double delta, double alpha, double power);

/// Detecting a true difference D != 0: n = (z_{1-alpha} + z_{power})^2 variance / D^2. For a
/// two-sided test at level a pass alpha = a / 2. The variance of a mean of K repetitions per
/// example is omega^2 + s_A^2 / K_A + s_B^2 / K_B.
double detection_n(double variance, double true_diff, double alpha, double power);

/// The smallest |D| that n examples detect: sqrt((z_{1-alpha} + z_{power})^2 variance / n).
double detectable_difference(double variance, double n, double alpha, double power);

/// n from which NON_INFERIOR is reached if not one answer flips: z_{1-alpha}^2 (1 - delta) / delta.
double zero_flip_n(double delta, double alpha);

/// Power that each of `buckets` independent buckets needs so that all pass with `power`.
double power_per_bucket(double power, int buckets);

}  // namespace kv
