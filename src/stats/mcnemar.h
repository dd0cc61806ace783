#pragma once

namespace kv {

/// Tests of "is there a shift?" from paired binary outcomes. losses = control right, candidate
/// wrong; gains = the reverse; both >= 0, fractions allowed (counts divided by a design effect):
/// the binomial tail P(X >= k), X ~ Bin(losses + gains, 1/2), is then I_{1/2}(k, n - k + 1).
///
/// One-sided values test for a loss. Mid-p = P(X > losses) + P(X = losses) / 2; two-sided values
/// are min(1, twice the smaller one-sided one). Without any discordant pair every p is 1. (McNemar
/// 1947; mid-p: Fagerland et al. 2013.)
struct McNemar {
  double exact_loss = 1;
  double exact_two_sided = 1;
  double midp_loss = 1;
  double midp_two_sided = 1;
  double chi_square = 0;            // (losses - gains)^2 / (losses + gains)
  double chi_square_p = 1;          // one degree of freedom
  double chi_square_corrected = 0;  // (max(0, |losses - gains| - 1))^2 / (losses + gains)
  double chi_square_corrected_p = 1;
};

/// Throws ValueError if a count is negative, NaN or infinite.
McNemar mcnemar(double losses, double gains);

}  // namespace kv
