#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/heat_map.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/scan_section.h"

namespace kv {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// Cells of one by-head map; beyond it only the noisiest layers are drawn, or the page gets heavy.
constexpr size_t kMostHeadCells = 1500;

double noise_of(const RangeRecord* record) {
  return record == nullptr ? kNone : record->noise_mean;
}

/// "Layer 0 is broken under every layout; ..." for those who cannot see the map.
std::string map_in_words(const RangeGrid& grid) {
  std::vector<std::string> parts;
  std::vector<const RangeRow*> healthy;
  for (const RangeRow& row : grid.rows) {
    if (row.worst_flag() == LayerFlag::kHealthy) {
      healthy.push_back(&row);
      continue;
    }
    parts.push_back(fmt::format("layer {} is {}, {} nats", row.layer, name(row.worst_flag()),
                                noise_extent(std::vector{&row}).text()));
  }
  if (!healthy.empty()) {
    parts.push_back(fmt::format("{} of {} layers are healthy, {} nats", healthy.size(),
                                grid.rows.size(), noise_extent(healthy).text()));
  }
  return fmt::format("{}.", fmt::join(parts, "; "));
}

HeatMap layer_map(const RangeGrid& grid) {
  HeatMap map;
  map.id = "score-noise";
  map.title = "Score noise of the keys by layer and layout, nats";
  map.description = map_in_words(grid);
  map.row_axis = "layer";
  map.column_axis = "layout";
  for (const std::string& layout : grid.layouts) map.columns.push_back(layout_label(layout));
  for (const RangeRow& row : grid.rows) {
    map.rows.push_back(fmt::to_string(row.layer));
    std::vector<double>& values = map.values.emplace_back();
    for (const RangeRecord* record : row.k) values.push_back(noise_of(record));
  }
  return map;
}

std::string mean_and_worst(const RangeRecord* record) {
  if (record == nullptr) return "-";
  return fmt::format("{} ({})", fixed(record->noise_mean, 3), fixed(record->noise_worst, 3));
}

void add_noise_table(Markup& html, const RangeGrid& grid) {
  std::vector<std::string> heads = {"layer", "flag"};
  for (const std::string& layout : grid.layouts) heads.push_back(layout_label(layout));
  std::vector<HtmlRow> rows;
  for (const RangeRow& row : grid.rows) {
    HtmlRow& out = rows.emplace_back();
    out.cells = {{fmt::to_string(row.layer)}, {std::string(name(row.worst_flag())), false}};
    for (const RangeRecord* record : row.k) {
      out.cells.push_back(
          {mean_and_worst(record), true, record == nullptr ? "" : record->record_id});
    }
  }
  add_table(
      html,
      fmt::format("Score noise in nats: mean over the heads (worst head), n = {} queries over "
                  "{} tokens",
                  grouped(grid.queries), grouped(grid.tokens)),
      heads, rows);
}

/// The layers of a by-head map: all, or the noisiest that fit, in their order.
std::vector<const RangeRow*> head_rows(const RangeGrid& grid, size_t layout, size_t heads) {
  std::vector<const RangeRow*> rows;
  for (const RangeRow& row : grid.rows) {
    if (row.k[layout] != nullptr && !row.k[layout]->noise_heads.empty()) rows.push_back(&row);
  }
  const size_t most = std::max<size_t>(1, kMostHeadCells / std::max<size_t>(1, heads));
  if (rows.size() <= most) return rows;
  std::stable_sort(rows.begin(), rows.end(), [&](const RangeRow* a, const RangeRow* b) {
    return a->k[layout]->noise_worst > b->k[layout]->noise_worst;
  });
  rows.resize(most);
  std::sort(rows.begin(), rows.end(),
            [](const RangeRow* a, const RangeRow* b) { return a->layer < b->layer; });
  return rows;
}

size_t most_heads(const RangeGrid& grid, size_t layout) {
  size_t most = 0;
  for (const RangeRow& row : grid.rows) {
    if (row.k[layout] != nullptr) most = std::max(most, row.k[layout]->noise_heads.size());
  }
  return most;
}

/// Heads from worst to best of the layers that stand out, as text beside the map.
void add_head_table(Markup& html, const std::vector<const RangeRow*>& rows, size_t layout) {
  std::vector<HtmlRow> out;
  for (const RangeRow* row : rows) {
    const std::vector<double>& heads = row->k[layout]->noise_heads;
    const auto worst = std::max_element(heads.begin(), heads.end());
    std::vector<std::string> all;
    for (const double noise : heads) all.push_back(fixed(noise, 2));
    out.push_back({{{fmt::to_string(row->layer)},
                    {fmt::format("{}: {}", worst - heads.begin(), fixed(*worst, 2))},
                    {fmt::format("{}", fmt::join(all, " ")), false}},
                   ""});
  }
  add_table(html, "The same in numbers, heads from 0 on", {"layer", "worst head", "all heads"},
            out);
}

void add_head_map(Markup& html, const RangeGrid& grid, size_t layout) {
  const size_t heads = most_heads(grid, layout);
  if (heads == 0) return;
  const std::vector<const RangeRow*> rows = head_rows(grid, layout, heads);
  const std::string label = layout_label(grid.layouts[layout]);
  HeatMap map;
  map.id = "score-noise-heads-" + anchor_of(grid.layouts[layout]);
  map.title = fmt::format("Score noise by layer and query head, {}, nats", label);
  map.description = fmt::format("{} layers by {} query heads; the table below has every number.",
                                rows.size(), heads);
  map.row_axis = "layer";
  map.column_axis = "query head";
  map.has_numbers = false;
  for (size_t head = 0; head < heads; ++head) map.columns.push_back(fmt::to_string(head));
  for (const RangeRow* row : rows) {
    map.rows.push_back(fmt::to_string(row->layer));
    map.values.push_back(row->k[layout]->noise_heads);
    map.values.back().resize(heads, kNone);
  }
  html.leaf("h3", map.title);
  if (rows.size() < grid.rows.size()) {
    html.leaf(
        "p",
        fmt::format("The {} layers with the worst heads of {}.", rows.size(), grid.rows.size()),
        {{"class", "small"}});
  }
  html.open("figure");
  draw(html, map);
  html.close();
  add_head_table(html, rows, layout);
}

HtmlRow record_row(const RangeRecord& record) {
  const bool is_kv = record.side == "kv";
  const auto only = [&](const std::string& text) { return HtmlCell{is_kv ? "" : text}; };
  return {{{fmt::to_string(record.layer)},
           {record.side, false},
           {layout_label(record.layout), false},
           only(fixed(record.noise_mean, 4)),
           only(fixed(record.noise_worst, 4)),
           {fixed(record.block_damage, 5)},
           only(fixed(record.sqnr_db, 1)),
           only(fixed(record.centred_sqnr_db, 1)),
           only(fmt::format("{:.2g}", record.clip_frac)),
           only(fmt::format("{:.2g}", record.zero_frac)),
           only(significant(record.amax, 4)),
           {grouped(record.queries)},
           {record.record_id, false}},
          record.record_id};
}

void add_record_table(Markup& html, const RangeGrid& grid) {
  std::vector<HtmlRow> rows;
  for (const RangeRow& row : grid.rows) {
    for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
      for (const RangeRecord* record : {row.k[layout], row.v[layout], row.both[layout]}) {
        if (record != nullptr) rows.push_back(record_row(*record));
      }
    }
  }
  add_table(html,
            "All range records. Noise: of k score noise in nats, of v value noise relative to the "
            "head's output; block damage: relative to the residual, of kv both sides together",
            {"layer", "side", "layout", "noise", "worst head", "block damage", "SQNR dB",
             "centred SQNR dB", "clipped", "flushed", "amax", "queries", "record"},
            rows);
}

void add_damage_table(Markup& html, const RangeGrid& grid) {
  std::vector<HtmlRow> rows;
  for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
    const RangeRecord* worst = nullptr;
    double clipped = 0;
    for (const RangeRow& row : grid.rows) {
      const RangeRecord* both = row.both[layout];
      if (both != nullptr && (worst == nullptr || both->block_damage > worst->block_damage)) {
        worst = both;
      }
      for (const RangeRecord* side : {row.k[layout], row.v[layout]}) {
        if (side != nullptr) clipped = std::max(clipped, side->clip_frac);
      }
    }
    rows.push_back(
        {{{layout_label(grid.layouts[layout]), false},
          {fixed(total_block_damage(grid, layout), 4)},
          {worst == nullptr ? "-"
                            : fmt::format("layer {}: {}", worst->layer,
                                          fixed(worst->block_damage * worst->block_damage, 4)),
           true, worst == nullptr ? "" : worst->record_id},
          {fmt::format("{:.2g}", clipped)}},
         ""});
  }
  add_table(
      html,
      fmt::format("Block damage squared (error that attention adds to the residual, relative), "
                  "summed over {} layers, n = {} queries",
                  grid.rows.size(), grouped(grid.queries)),
      {"layout", "sum", "most of it", "worst clip share"}, rows);
}

}  // namespace

void add_range_section(Markup& html, const RangeGrid& grid) {
  open_section(html, "ranges", "Score noise by layer and layout");
  html.leaf("p",
            "How far rounding the keys moves attention's scores, from one pass of BF16. A softmax "
            "ignores an error that all keys share, so the mean is taken out.",
            {{"class", "small"}});
  html.open("figure");
  draw(html, layer_map(grid));
  html.leaf("figcaption", map_in_words(grid)).close();
  draw_legend(html);
  open_details(html, "The same as a table");
  add_noise_table(html, grid);
  html.close();
  open_details(html, "By query head");
  for (size_t layout = 0; layout < grid.layouts.size(); ++layout) add_head_map(html, grid, layout);
  html.close();
  add_damage_table(html, grid);
  add_head_health(html, grid);
  open_details(html, "Every range record");
  add_record_table(html, grid);
  html.close().close();
}

}  // namespace kv
