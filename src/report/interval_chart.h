#pragma once

#include <limits>
#include <string>
#include <vector>

#include "report/markup.h"

namespace kv {

/// One line of an interval chart: a dot, its interval, its label and its value in words.
struct ChartRow {
  std::string label;
  double value = 0;
  double low = std::numeric_limits<double>::quiet_NaN();  // NaN: no interval
  double high = std::numeric_limits<double>::quiet_NaN();
  std::string note;         // "-0.5 [-2.1, +1.1], n 200"
  bool is_flagged = false;  // drawn as a square with a strong colour instead of a dot
};

/// A vertical line: a margin, zero.
struct ChartLine {
  double value = 0;
  std::string label;
  bool is_dashed = true;
};

/// Dots with intervals along one axis, one row each; drawn as SVG that is readable on a phone.
struct IntervalChart {
  std::string id;  // of the SVG, unique in the page
  std::string title, description;
  std::string axis;     // quantity and unit
  bool is_log = false;  // values at or below 0 are drawn at the left end
  std::vector<ChartRow> rows;
  std::vector<ChartLine> lines;
};

/// Adds the SVG. Values that are not finite have no dot, only their note.
void draw(Markup& html, const IntervalChart& chart);

/// Round numbers between low and high, low < high, about `count` of them.
std::vector<double> linear_ticks(double low, double high, int count);

}  // namespace kv
