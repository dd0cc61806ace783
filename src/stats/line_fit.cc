#include "stats/line_fit.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "stats/check.h"

namespace kv {

LineFit fit_line(std::span<const double> x, std::span<const double> y) {
  require_same_size("fit_line", "y", y.size(), "x", x.size());
  require(x.size() >= 3, "fit_line", "n", static_cast<double>(x.size()), "at least 3");
  require_finite("fit_line", "x", x);
  require_finite("fit_line", "y", y);
  const double n = static_cast<double>(x.size());
  const double xbar = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double ybar = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sxx += (x[i] - xbar) * (x[i] - xbar);
    sxy += (x[i] - xbar) * (y[i] - ybar);
  }
  require(sxx > 0, "fit_line", "spread of x", sxx, "more than 0");
  LineFit out{sxy / sxx, ybar - sxy / sxx * xbar, 0};
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double residual = (y[i] - ybar) - out.slope * (x[i] - xbar);
    squares += residual * residual;
  }
  out.slope_se = std::sqrt(squares / (n - 2) / sxx);
  return out;
}

double break_even(const LineFit& control, const LineFit& candidate) {
  const double gain = control.slope - candidate.slope;
  const double cost = candidate.intercept - control.intercept;
  require(std::isfinite(gain), "break_even", "difference of slopes", gain, "a finite number");
  require(std::isfinite(cost), "break_even", "difference of intercepts", cost, "a finite number");
  return gain > 0 ? cost / gain : std::numeric_limits<double>::infinity();
}

}  // namespace kv
