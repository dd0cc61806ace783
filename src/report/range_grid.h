#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decide/flags.h"
#include "evaluate/record.h"

namespace kv {

/// How people call a layout: "fp8_token_head" -> "per token and head". Unknown names stay.
std::string layout_label(std::string_view layout);

/// "healthy", "doubtful", "broken".
std::string_view name(LayerFlag flag);

/// One layer's records, [layout]; null where there is none.
struct RangeRow {
  int64_t layer = 0;
  std::vector<const RangeRecord*> k, v, both;

  /// Of the keys under one layout, and the worst of all layouts.
  LayerFlag flag(size_t layout) const;
  LayerFlag worst_flag() const;
  /// Whether the keys are broken under every layout that was measured.
  bool is_broken_everywhere() const;
};

/// Range records as a table, layers x layouts. Points into the records.
struct RangeGrid {
  std::vector<std::string> layouts;  // scale 1.0 first, then coarse to fine
  std::vector<RangeRow> rows;        // ascending by layer
  int64_t tokens = 0, queries = 0;
};

/// Throws ValueError naming the record when there are none, two are of the same layer, side and
/// layout, or a side is not "k", "v" or "kv".
RangeGrid make_range_grid(std::span<const RangeRecord> records);

/// Smallest and largest of some numbers.
struct Extent {
  double low = 0, high = 0;
  bool is_empty = true;
  void add(double value);
  /// "1.4 to 2.8", or "1.4" when both look the same; two significant digits.
  std::string text() const;
};

/// Mean score noise over the given rows, over all layouts or over one.
Extent noise_extent(std::span<const RangeRow* const> rows);
Extent noise_extent(std::span<const RangeRow* const> rows, size_t layout);

/// Sum over layers of squared block damage (K and V rounded together) under one layout.
double total_block_damage(const RangeGrid& grid, size_t layout);

}  // namespace kv
