#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "report/arm_table.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/range_grid.h"
#include "report/run_facts_text.h"
#include "report/scan_report.h"
#include "report/text_table.h"

namespace kv {
namespace {

int color_of(LayerFlag flag) {
  return flag == LayerFlag::kBroken ? kRed : flag == LayerFlag::kDoubtful ? kYellow : kGreen;
}

/// A block whose height doubles with the noise: 0.02 nats is the lowest, 2.56 the full one.
std::string block_of(double noise, const TextStyle& style) {
  static constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (!style.unicode) return "";
  const double level =
      std::isfinite(noise) ? std::floor(std::log2(std::max(noise, 0.02) / 0.02)) : 7;
  return std::string(kBlocks[static_cast<size_t>(std::clamp(level, 0.0, 7.0))]) + " ";
}

/// "█ 2.77 (7.70)".
TextCell noise_cell(const RangeRow& row, size_t layout, const TextStyle& style) {
  const RangeRecord* record = row.k[layout];
  if (record == nullptr) return {"-"};
  return {fmt::format("{}{} ({})", block_of(record->noise_mean, style),
                      fixed(record->noise_mean, 2), fixed(record->noise_worst, 2)),
          color_of(row.flag(layout))};
}

/// "▄ 0.07 to 0.19": the means of several healthy layers.
TextCell summary_cell(const std::vector<const RangeRow*>& rows, size_t layout,
                      const TextStyle& style) {
  const Extent extent = noise_extent(rows, layout);
  if (extent.is_empty) return {"-"};
  return {fmt::format("{}{} to {}", block_of(extent.high, style), fixed(extent.low, 2),
                      fixed(extent.high, 2)),
          kGreen};
}

std::string heat_map(const RangeGrid& grid, const TextStyle& style) {
  std::vector<TextColumn> columns = {{"layer", false, true}, {"", false}};
  for (const std::string& layout : grid.layouts)
    columns.push_back({layout_label(layout), false, true});
  std::vector<std::vector<TextCell>> rows;
  std::vector<const RangeRow*> healthy;
  std::vector<int64_t> healthy_layers;
  for (const RangeRow& row : grid.rows) {
    const LayerFlag flag = row.worst_flag();
    if (flag == LayerFlag::kHealthy) {
      healthy.push_back(&row);
      healthy_layers.push_back(row.layer);
      continue;
    }
    std::vector<TextCell> cells = {{fmt::to_string(row.layer)},
                                   {std::string(name(flag)), color_of(flag)}};
    for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
      cells.push_back(noise_cell(row, layout, style));
    }
    rows.push_back(std::move(cells));
  }
  if (!healthy.empty()) {
    std::vector<TextCell> cells = {{compact_numbers(healthy_layers)}, {"healthy", kGreen}};
    for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
      cells.push_back(summary_cell(healthy, layout, style));
    }
    rows.push_back(std::move(cells));
  }
  std::vector<TextCell> damage = {{"block damage"}, {""}};
  for (size_t layout = 0; layout < grid.layouts.size(); ++layout) {
    damage.push_back({fixed(total_block_damage(grid, layout), 4)});
  }
  rows.push_back(std::move(damage));
  return text_table(columns, rows, style);
}

/// Layers that are flagged and owe most of that to the first token, under the worst layout.
std::string first_token_text(const ScanReport& report, const TextStyle& style) {
  const FirstTokenRecord* worst = nullptr;
  for (const FirstTokenRecord& record : report.first_tokens) {
    if (record.side != "k" || !(record.noise_share > 0.5)) continue;
    if (flag_layer(record.noise) == LayerFlag::kHealthy) continue;
    if (worst == nullptr || record.noise > worst->noise) worst = &record;
  }
  if (worst == nullptr) return "";
  return paragraph(
      fmt::format(
          "The first token alone makes {} of layer {}'s squared score noise under {}: {} of "
          "the attention goes to it, and its key is {} times as long as the others. "
          "eval --arms fp8_scale1/sink=4 shows what first tokens in BF16 would help.",
          percent(worst->noise_share), worst->layer, worst->layout, percent(worst->attention),
          significant(worst->norm_ratio, 2)),
      style);
}

}  // namespace

std::string scan_text(const ScanReport& report, const TextStyle& style) {
  check_style(style);
  const RangeGrid grid = make_range_grid(report.ranges);
  std::vector<ArmRow> arms = make_arm_rows(report.arms, report.capacities);
  add_predictions(report.ranges, arms);
  std::string out = model_text(report.model, report.prompts, style);
  out += '\n';
  out += paragraph(
      fmt::format("Score noise of the keys in nats, mean over the heads (worst head); {} queries "
                  "over {} tokens. Block damage: squared, summed over the layers.",
                  grouped(grid.queries), grouped(grid.tokens)),
      style);
  out += heat_map(grid, style);
  out += first_token_text(report, style);
  out += '\n';
  out += arm_text(arms, style);
  out += '\n';
  for (const std::string& line : wrap(scan_sentence(report), style.width)) {
    out += colored(line, kBold, style) + '\n';
  }
  const std::string facts = run_text(report.run, style);
  if (!facts.empty()) out += '\n' + facts;
  out.pop_back();
  return out;
}

}  // namespace kv
