#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "report/heat_map.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/scan_section.h"

namespace kv {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostCells = 1500;  // of one map; beyond it only the worst layers are drawn

/// One of the two quantities that a map shows: which field, on which scale, which end is bad.
struct HeadQuantity {
  std::string id, title, unit;
  std::vector<double> RangeRecord::*heads;
  HeatScale scale;

  double worst(const RangeRecord& record) const {
    const std::vector<double>& values = record.*heads;
    return scale.is_falling ? *std::ranges::min_element(values) : *std::ranges::max_element(values);
  }
};

HeadQuantity sqnr() {
  return {"sqnr-heads", "Signal to quantization error by layer and KV head", "dB",
          &RangeRecord::sqnr_db_heads, sqnr_scale()};
}

HeadQuantity clipping() {
  return {"clip-heads", "Clipped share by layer and KV head", "of the values",
          &RangeRecord::clip_frac_heads, clip_scale()};
}

bool has_heads(const RangeRecord* record) {
  return record != nullptr && !record->sqnr_db_heads.empty() &&
         record->clip_frac_heads.size() == record->sqnr_db_heads.size();
}

/// Layers with K and V by head under one layout; the worst of them, in their order, when there are
/// more than a map holds.
std::vector<const RangeRow*> shown_layers(const RangeGrid& grid, size_t layout) {
  std::vector<const RangeRow*> rows;
  size_t heads = 1;
  for (const RangeRow& row : grid.rows) {
    if (!has_heads(row.k[layout]) || !has_heads(row.v[layout])) continue;
    rows.push_back(&row);
    heads = std::max(heads, row.k[layout]->sqnr_db_heads.size());
  }
  const size_t most = std::max<size_t>(1, kMostCells / (2 * heads));
  if (rows.size() <= most) return rows;
  const HeadQuantity quantity = sqnr();
  std::ranges::stable_sort(rows, {}, [&](const RangeRow* row) {
    return std::min(quantity.worst(*row->k[layout]), quantity.worst(*row->v[layout]));
  });
  rows.resize(most);
  std::ranges::sort(rows, {}, &RangeRow::layer);
  return rows;
}

HeatMap map_of(const HeadQuantity& quantity, const std::vector<const RangeRow*>& rows,
               const std::string& layout, size_t index) {
  HeatMap map;
  map.id = fmt::format("{}-{}", quantity.id, anchor_of(layout));
  map.title = fmt::format("{}, {}", quantity.title, layout_label(layout));
  map.row_axis = "layer";
  map.column_axis = "head";
  map.has_numbers = false;
  map.scale = quantity.scale;
  size_t heads = 0;
  for (const RangeRow* row : rows) heads = std::max(heads, (row->k[index]->*quantity.heads).size());
  for (const char* side : {"k", "v"}) {
    for (size_t head = 0; head < heads; ++head)
      map.columns.push_back(fmt::format("{}{}", side, head));
  }
  double worst = quantity.scale.is_falling ? std::numeric_limits<double>::infinity() : 0;
  for (const RangeRow* row : rows) {
    map.rows.push_back(fmt::to_string(row->layer));
    std::vector<double>& values = map.values.emplace_back();
    for (const RangeRecord* side : {row->k[index], row->v[index]}) {
      std::vector<double> own = side->*quantity.heads;
      own.resize(heads, kUnknown);
      values.insert(values.end(), own.begin(), own.end());
      const double found = quantity.worst(*side);
      worst = quantity.scale.is_falling ? std::min(worst, found) : std::max(worst, found);
    }
  }
  map.description = fmt::format(
      "{} layers by {} heads of K and V, the worst at {} {}; the table "
      "below has every number.",
      rows.size(), heads, significant(worst, 3), quantity.unit);
  return map;
}

void add_map(Markup& html, const HeadQuantity& quantity, const std::vector<const RangeRow*>& rows,
             const std::string& layout, size_t index) {
  const HeatMap map = map_of(quantity, rows, layout, index);
  html.leaf("h4", quantity.title);
  html.open("figure");
  draw(html, map);
  html.leaf("figcaption", map.description).close();
  draw_legend(html, quantity.scale);
}

std::string all_heads(const std::vector<double>& values, bool is_share) {
  std::vector<std::string> out;
  for (const double value : values) {
    out.push_back(is_share ? fmt::format("{:.2g}", value) : fixed(value, 1));
  }
  return fmt::format("{}", fmt::join(out, " "));
}

void add_numbers(Markup& html, const std::vector<const RangeRow*>& rows, size_t index) {
  std::vector<HtmlRow> out;
  for (const RangeRow* row : rows) {
    for (const RangeRecord* side : {row->k[index], row->v[index]}) {
      out.push_back({{{fmt::to_string(row->layer)},
                      {side->side, false},
                      {all_heads(side->sqnr_db_heads, false), false},
                      {all_heads(side->clip_frac_heads, true), false},
                      {side->record_id, false, side->record_id}},
                     ""});
    }
  }
  add_table(html, "The same in numbers, heads from 0 on",
            {"layer", "side", "SQNR dB", "clipped share", "record"}, out);
}

bool clips(const std::vector<const RangeRow*>& rows, size_t index) {
  const HeadQuantity quantity = clipping();
  return std::ranges::any_of(rows, [&](const RangeRow* row) {
    return quantity.worst(*row->k[index]) > 0 || quantity.worst(*row->v[index]) > 0;
  });
}

}  // namespace

void add_head_health(Markup& html, const RangeGrid& grid) {
  bool is_open = false;
  for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
    const std::vector<const RangeRow*> rows = shown_layers(grid, layout);
    if (rows.empty()) continue;
    if (!is_open) open_details(html, "Precision and clipping by KV head");
    is_open = true;
    const std::string& name = grid.layouts[layout];
    html.leaf("h3", layout_label(name));
    if (rows.size() < grid.rows.size()) {
      html.leaf(
          "p",
          fmt::format("The {} layers with the worst heads of {}.", rows.size(), grid.rows.size()),
          {{"class", "small"}});
    }
    add_map(html, sqnr(), rows, name, layout);
    if (clips(rows, layout)) {
      add_map(html, clipping(), rows, name, layout);
    } else {
      html.leaf("p", "Nothing clips in any of these heads.");
    }
    add_numbers(html, rows, layout);
  }
  if (is_open) html.close();
}

}  // namespace kv
