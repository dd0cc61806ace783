#pragma once

#include <string>
#include <vector>

#include "report/markup.h"

namespace kv {

/// Score noise as a grid of coloured cells, drawn as SVG. Colours change at the limits that
/// decide calls doubtful and broken, and those cells carry a mark too: colour is never alone.
struct HeatMap {
  std::string id;  // of the SVG, unique in the page
  std::string title, description;
  std::string row_axis, column_axis;        // "layer", "query head"
  std::vector<std::string> rows, columns;   // labels
  std::vector<std::vector<double>> values;  // [row][column], nats; NaN = not measured
  bool has_numbers = true;                  // needs about 50 units a column: six columns at most
};

void draw(Markup& html, const HeatMap& map);

/// What the colours mean, as a list; once a page.
void draw_legend(Markup& html);

}  // namespace kv
