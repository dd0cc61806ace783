#include "stats/sequential.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "stats/check.h"
#include "stats/distributions.h"
#include "stats/intervals.h"

namespace kv {
namespace {

constexpr int kNodes = 801;           // odd: Simpson's rule
constexpr double kMinStep = 0.005;    // closer looks would be narrower than the nodes' spacing
constexpr double kLargestBound = 40;  // normal_upper(40) is 0 in double
constexpr double kFarOut = 8.5;       // standard deviations with nothing beyond, relative to 1e-16

/// Where the score S_k = Z_k sqrt(I_k) may be after the looks so far, if no bound was crossed:
/// point masses at Simpson's nodes.
class ScoreDensity {
 public:
  /// Before the first look everything is at 0.
  ScoreDensity() : x_{0}, mass_{1} {}

  /// Chance that one more step of variance `variance` ends outside [-limit, limit].
  double leaving(double limit, double variance) const {
    const double sd = std::sqrt(variance);
    double sum = 0;
    for (size_t i = 0; i < x_.size(); ++i) sum += mass_[i] * normal_upper((limit - x_[i]) / sd);
    return 2 * sum;  // the density is even
  }

  /// Takes the step and drops what ended outside [-limit, limit].
  void advance(double limit, double variance) {
    const double sd = std::sqrt(variance), spacing = 2 * limit / (kNodes - 1);
    const double density = 1 / (sd * std::sqrt(2 * std::numbers::pi));
    std::vector<double> x(kNodes), mass(kNodes);
    for (int j = 0; j < kNodes; ++j) {
      const size_t k = static_cast<size_t>(j);
      x[k] = -limit + spacing * j;
      double sum = 0;
      for (size_t i = 0; i < x_.size(); ++i) {
        const double u = (x[k] - x_[i]) / sd;
        sum += mass_[i] * std::exp(-0.5 * u * u);
      }
      const double simpson = (j == 0 || j == kNodes - 1) ? 1 : j % 2 == 1 ? 4 : 2;
      mass[k] = sum * density * simpson * spacing / 3;
    }
    x_ = std::move(x);
    mass_ = std::move(mass);
  }

 private:
  std::vector<double> x_;
  std::vector<double> mass_;
};

void require_fractions(const char* function, std::span<const double> fractions) {
  require(!fractions.empty(), function, "looks", 0, "at least 1");
  double last = 0;
  for (const double fraction : fractions) {
    require(fraction <= 1 + 1e-12 && fraction >= last + kMinStep * (1 - 1e-9), function, "fraction",
            fraction, "0.005 or more above the one before and at most 1");
    last = fraction;
  }
}

/// Nodes reach to the bound, or to where no mass is left.
double node_limit(double bound, double fraction) {
  return std::min(bound, kFarOut) * std::sqrt(fraction);
}

/// The bound at which leaving() falls to `error`.
double solve_bound(const ScoreDensity& density, double error, double fraction, double variance) {
  double low = 0, high = kLargestBound;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (density.leaving(middle * std::sqrt(fraction), variance) > error ? low : high) = middle;
  }
  return high;
}

}  // namespace

double spent_error(double fraction, double alpha) {
  require(fraction > 0 && fraction <= 1 + 1e-12, "spent_error", "fraction", fraction,
          "more than 0 and at most 1");
  require_open_unit("spent_error", "alpha", alpha);
  return 4 * normal_upper(-normal_quantile(alpha / 4) / std::sqrt(fraction));
}

std::vector<double> look_bounds(std::span<const double> fractions, double alpha) {
  require_fractions("look_bounds", fractions);
  require_open_unit("look_bounds", "alpha", alpha);
  std::vector<double> bounds;
  ScoreDensity density;
  double last = 0, spent = 0;
  for (size_t k = 0; k < fractions.size(); ++k) {
    const double fraction = fractions[k], variance = fraction - last;
    const double may_spend = spent_error(fraction, alpha);
    bounds.push_back(solve_bound(density, may_spend - spent, fraction, variance));
    if (k + 1 < fractions.size()) density.advance(node_limit(bounds.back(), fraction), variance);
    last = fraction;
    spent = may_spend;
  }
  return bounds;
}

std::vector<double> crossing_probabilities(std::span<const double> fractions,
                                           std::span<const double> bounds) {
  require_fractions("crossing_probabilities", fractions);
  require_same_size("crossing_probabilities", "bounds", bounds.size(), "fractions",
                    fractions.size());
  std::vector<double> out;
  ScoreDensity density;
  double last = 0, crossed = 0;
  for (size_t k = 0; k < fractions.size(); ++k) {
    require(bounds[k] > 0 && std::isfinite(bounds[k]), "crossing_probabilities", "bound", bounds[k],
            "more than 0 and finite");
    const double variance = fractions[k] - last;
    crossed += density.leaving(bounds[k] * std::sqrt(fractions[k]), variance);
    out.push_back(crossed);
    if (k + 1 < fractions.size()) density.advance(node_limit(bounds[k], fractions[k]), variance);
    last = fractions[k];
  }
  return out;
}

double nominal_level(double bound) { return normal_upper(bound); }

}  // namespace kv
