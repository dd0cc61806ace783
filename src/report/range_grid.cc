#include "report/range_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "kvscale/error.h"
#include "report/numbers.h"

namespace kv {
namespace {

struct Label {
  std::string_view layout, label;
};

/// In the order of the tables: without calibration first, then from coarse to fine.
constexpr std::array<Label, 6> kLabels = {
    Label{"bf16", "BF16"}, Label{"fp8_scale1", "scale 1.0"}, Label{"fp8_tensor", "per tensor"},
    Label{"fp8_head", "per head"}, Label{"fp8_token_head", "per token and head"},
    Label{"fp8_ds_mla", "per token and 128 values"}};

size_t rank_of(std::string_view layout) {
  return static_cast<size_t>(
      std::find_if(kLabels.begin(), kLabels.end(),
                   [&](const Label& known) { return known.layout == layout; }) -
      kLabels.begin());
}

std::vector<std::string> layouts_of(std::span<const RangeRecord> records) {
  std::vector<std::string> out;
  for (const RangeRecord& record : records) {
    if (std::find(out.begin(), out.end(), record.layout) == out.end()) out.push_back(record.layout);
  }
  std::stable_sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return rank_of(a) < rank_of(b);
  });
  return out;
}

std::vector<const RangeRecord*>& side_of(RangeRow& row, const RangeRecord& record) {
  if (record.side == "k") return row.k;
  if (record.side == "v") return row.v;
  if (record.side == "kv") return row.both;
  throw ValueError(
      fmt::format("range record {}: side: expected \"k\", \"v\" or \"kv\", found \"{}\"",
                  record.record_id, record.side));
}

}  // namespace

std::string layout_label(std::string_view layout) {
  const size_t rank = rank_of(layout);
  return std::string(rank < kLabels.size() ? kLabels[rank].label : layout);
}

std::string_view name(LayerFlag flag) {
  switch (flag) {
    case LayerFlag::kHealthy:
      return "healthy";
    case LayerFlag::kDoubtful:
      return "doubtful";
    case LayerFlag::kBroken:
      return "broken";
  }
  return "";
}

LayerFlag RangeRow::flag(size_t layout) const {
  return k[layout] == nullptr ? LayerFlag::kHealthy : flag_layer(k[layout]->noise_mean);
}

LayerFlag RangeRow::worst_flag() const {
  LayerFlag worst = LayerFlag::kHealthy;
  for (size_t layout = 0; layout < k.size(); ++layout) worst = std::max(worst, flag(layout));
  return worst;
}

bool RangeRow::is_broken_everywhere() const {
  const auto survives = [](const RangeRecord* record) {
    return record != nullptr && flag_layer(record->noise_mean) != LayerFlag::kBroken;
  };
  return worst_flag() == LayerFlag::kBroken && std::none_of(k.begin(), k.end(), survives);
}

RangeGrid make_range_grid(std::span<const RangeRecord> records) {
  if (records.empty()) throw ValueError("scan report: expected range records, found none");
  RangeGrid grid;
  grid.layouts = layouts_of(records);
  std::map<int64_t, RangeRow> rows;
  for (const RangeRecord& record : records) {
    RangeRow& row = rows[record.layer];
    row.layer = record.layer;
    for (auto* side : {&row.k, &row.v, &row.both}) side->resize(grid.layouts.size());
    const auto layout = std::find(grid.layouts.begin(), grid.layouts.end(), record.layout);
    const RangeRecord*& slot =
        side_of(row, record)[static_cast<size_t>(layout - grid.layouts.begin())];
    if (slot != nullptr) {
      throw ValueError(
          fmt::format("range record {}: layer {} side {} layout {} is there already: {}",
                      record.record_id, record.layer, record.side, record.layout, slot->record_id));
    }
    slot = &record;
    grid.tokens = std::max(grid.tokens, record.tokens);
    grid.queries = std::max(grid.queries, record.queries);
  }
  for (auto& [layer, row] : rows) grid.rows.push_back(std::move(row));
  return grid;
}

void Extent::add(double value) {
  if (!is_empty && std::isnan(high)) return;
  low = is_empty ? value : std::min(low, value);
  // Written so that a NaN, which compares false with everything, stays visible as the upper end.
  high = is_empty || !(value <= high) ? value : high;
  is_empty = false;
}

std::string Extent::text() const {
  const std::string from = significant(low, 2), to = significant(high, 2);
  return from == to ? from : from + " to " + to;
}

Extent noise_extent(std::span<const RangeRow* const> rows, size_t layout) {
  Extent out;
  for (const RangeRow* row : rows) {
    if (row->k[layout] != nullptr) out.add(row->k[layout]->noise_mean);
  }
  return out;
}

Extent noise_extent(std::span<const RangeRow* const> rows) {
  Extent out;
  for (const RangeRow* row : rows) {
    for (const RangeRecord* record : row->k) {
      if (record != nullptr) out.add(record->noise_mean);
    }
  }
  return out;
}

double total_block_damage(const RangeGrid& grid, size_t layout) {
  double sum = 0;
  for (const RangeRow& row : grid.rows) {
    if (row.both[layout] == nullptr) continue;
    sum += row.both[layout]->block_damage * row.both[layout]->block_damage;
  }
  return sum;
}

}  // namespace kv
