#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/markup.h"
#include "stats/intervals.h"

namespace kv {

/// A share that begins at 1 and falls in steps.
struct StepCurve {
  std::string label, note;
  std::vector<std::pair<double, double>> steps;  // x, and the share from there on
  double end = 0;                                // x where the curve ends
  Interval end_interval;
};

/// Step curves over one axis that begins at 0, told apart by their dashes; each ends with its
/// interval. Drawn as SVG that is readable on a phone.
struct StepChart {
  std::string id;  // of the SVG, unique in the page
  std::string title, description;
  std::string axis;  // quantity and unit
  std::vector<StepCurve> curves;
};

/// Curves beyond so many could not be told apart.
inline constexpr size_t kMostStepCurves = 8;

/// Adds the SVG. Throws ValueError for more curves than kMostStepCurves.
void draw(Markup& html, const StepChart& chart);

}  // namespace kv
