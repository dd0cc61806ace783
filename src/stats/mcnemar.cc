#include "stats/mcnemar.h"

#include <algorithm>
#include <cmath>

#include "stats/check.h"
#include "stats/distributions.h"

namespace kv {
namespace {

double exact_tail(double k, double other) { return binomial_upper(k, k + other, 0.5); }

// P(X > k) + P(X = k) / 2 = (P(X >= k) + P(X >= k + 1)) / 2, which holds between the integers too.
double midp_tail(double k, double other) {
  return (exact_tail(k, other) + binomial_upper(k + 1, k + other, 0.5)) / 2;
}

}  // namespace

McNemar mcnemar(double losses, double gains) {
  require(losses >= 0 && std::isfinite(losses), "mcnemar", "losses", losses,
          "at least 0 and finite");
  require(gains >= 0 && std::isfinite(gains), "mcnemar", "gains", gains, "at least 0 and finite");
  McNemar out;
  const double flips = losses + gains;
  if (flips == 0) return out;
  const double gap = std::abs(losses - gains), corrected_gap = std::max(0.0, gap - 1);
  out.exact_loss = exact_tail(losses, gains);
  out.exact_two_sided = std::min(1.0, 2 * std::min(out.exact_loss, exact_tail(gains, losses)));
  out.midp_loss = midp_tail(losses, gains);
  out.midp_two_sided = std::min(1.0, 2 * std::min(out.midp_loss, midp_tail(gains, losses)));
  out.chi_square = gap * gap / flips;
  out.chi_square_p = chi_square_upper(out.chi_square, 1);
  out.chi_square_corrected = corrected_gap * corrected_gap / flips;
  out.chi_square_corrected_p = chi_square_upper(out.chi_square_corrected, 1);
  return out;
}

}  // namespace kv
