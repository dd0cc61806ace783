#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "report/markup.h"

namespace kv {

/// How values become colours, in seven steps from harmless to bad.
struct HeatScale {
  std::string unit;
  std::array<double, 6> ends{};     // where a step ends and the next worse one begins
  bool is_falling = false;          // small values are the bad ones: `ends` fall
  double doubtful = 0, broken = 0;  // cells from here on carry a mark: colour is never alone
  int decimals = 3;                 // of a cell's tooltip; -1: two significant digits

  size_t step_of(double value) const;
  /// "! " for doubtful, "✕ " for broken, else nothing.
  std::string mark_of(double value) const;
};

/// Score noise in nats; colours change at the limits that decide calls doubtful and broken.
HeatScale noise_scale();
/// Signal to quantization error in dB: 31.5 is what E4M3 keeps of anything in its normal range, and
/// at 20 the error is a tenth of the values.
HeatScale sqnr_scale();
/// Share of values beyond the largest code; doubtful from where decide speaks of drift.
HeatScale clip_scale();

/// A grid of coloured cells, drawn as SVG.
struct HeatMap {
  std::string id;  // of the SVG, unique in the page
  std::string title, description;
  std::string row_axis, column_axis;        // "layer", "query head"
  std::vector<std::string> rows, columns;   // labels
  std::vector<std::vector<double>> values;  // [row][column]; NaN = not measured
  bool has_numbers = true;                  // needs about 50 units a column: six columns at most
  HeatScale scale = noise_scale();
};

void draw(Markup& html, const HeatMap& map);

/// What the colours of score noise mean, as a list; once a page.
void draw_legend(Markup& html);
/// What the colours of another scale mean.
void draw_legend(Markup& html, const HeatScale& scale);

}  // namespace kv
