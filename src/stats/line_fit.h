#pragma once

#include <span>

namespace kv {

/// Ordinary least squares y = slope * x + intercept.
struct LineFit {
  double slope = 0;
  double intercept = 0;
  double slope_se = 0;  // sqrt(SSE / (n - 2) / Sxx)
};

/// n >= 3 finite points, x not constant; else ValueError.
LineFit fit_line(std::span<const double> x, std::span<const double> y);

/// Context length from which the candidate's line lies below the control's:
/// (candidate.intercept - control.intercept) / (control.slope - candidate.slope). Infinity if the
/// candidate's slope is not smaller; below 0 if it is faster at every length.
double break_even(const LineFit& control, const LineFit& candidate);

}  // namespace kv
