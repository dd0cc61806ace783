#include "report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "decide/thresholds.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/svg.h"

namespace kv {
namespace {

constexpr double kLeft = 34, kMapTop = 30, kNumberHeight = 17, kPlainHeight = 9;

struct Geometry {
  double cell_width = 0, cell_height = 0;
  explicit Geometry(const HeatMap& map)
      : cell_width((kSvgWidth - kLeft - 2) /
                   static_cast<double>(std::max<size_t>(1, map.columns.size()))),
        cell_height(map.has_numbers ? kNumberHeight : kPlainHeight) {}
  double x(size_t column) const { return kLeft + cell_width * static_cast<double>(column); }
  double y(size_t row) const { return kMapTop + cell_height * static_cast<double>(row); }
};

/// Column titles, in two lines where they need them; numbers only every few columns.
void draw_columns(Markup& html, const HeatMap& map, const Geometry& at) {
  const auto every = static_cast<size_t>(std::ceil((map.has_numbers ? 1 : 14) / at.cell_width));
  for (size_t c = 0; c < map.columns.size(); c += std::max<size_t>(1, every)) {
    const int fit = std::max(6, static_cast<int>(at.cell_width / 5));
    const std::vector<std::string> lines = wrap(printable(map.columns[c]), fit);
    for (size_t i = 0; i < lines.size(); ++i) {
      const double y = kMapTop - 5 - 11 * static_cast<double>(lines.size() - 1 - i);
      html.leaf("text", lines[i],
                {{"class", "head"},
                 {"x", svg_number(at.x(c) + at.cell_width / 2)},
                 {"y", svg_number(y)}});
    }
  }
}

void draw_cell(Markup& html, const HeatMap& map, const Geometry& at, size_t r, size_t c) {
  const double value = map.values[r][c];
  if (std::isnan(value)) return;
  const size_t step = map.scale.step_of(value);
  const std::string mark = map.scale.mark_of(value);
  html.open("rect", {{"class", fmt::format("h{}{}", step, mark.empty() ? "" : " marked")},
                     {"x", svg_number(at.x(c))},
                     {"y", svg_number(at.y(r))},
                     {"width", svg_number(at.cell_width - (map.has_numbers ? 2 : 0.5))},
                     {"height", svg_number(at.cell_height - (map.has_numbers ? 2 : 0.5))}});
  const std::string number =
      map.scale.decimals < 0 ? fmt::format("{:.2g}", value) : fixed(value, map.scale.decimals);
  html.leaf("title", fmt::format("{} {}, {}: {} {}", map.row_axis, map.rows[r], map.columns[c],
                                 number, map.scale.unit));
  html.close();
  if (!map.has_numbers) return;
  html.leaf("text", mark + fixed(value, 2),
            {{"class", fmt::format("cell t{}", step)},
             {"x", svg_number(at.x(c) + at.cell_width / 2 - 1)},
             {"y", svg_number(at.y(r) + 11.5)}});
}

}  // namespace

size_t HeatScale::step_of(double value) const {
  return static_cast<size_t>(
      std::ranges::find_if(ends,
                           [&](double end) { return is_falling ? value >= end : value < end; }) -
      ends.begin());
}

std::string HeatScale::mark_of(double value) const {
  const auto reaches = [&](double limit) { return is_falling ? value < limit : value >= limit; };
  return reaches(broken) ? "✕ " : reaches(doubtful) ? "! " : "";
}

HeatScale noise_scale() {
  // Two steps below each limit of decide, one above.
  return {"nats",
          {0.1, 0.2, thresholds::kDoubtfulNoise, 0.6, thresholds::kBrokenNoise, 2.0},
          false,
          thresholds::kDoubtfulNoise,
          thresholds::kBrokenNoise,
          3};
}

HeatScale sqnr_scale() { return {"dB", {31, 28, 24, 20, 15, 10}, true, 20, 10, 1}; }

HeatScale clip_scale() {
  return {"of the values",
          {1e-6, 1e-5, thresholds::kTokenClipFrac, 1e-3, 1e-2, 1e-1},
          false,
          thresholds::kTokenClipFrac,
          1e-2,
          -1};
}

void draw(Markup& html, const HeatMap& map) {
  const Geometry at(map);
  const double height = at.y(map.rows.size()) + 4;
  html.open("svg", {{"id", map.id},
                    {"class", "chart heat"},
                    {"role", "img"},
                    {"viewBox", fmt::format("0 0 {} {}", kSvgWidth, height)},
                    {"aria-labelledby", fmt::format("{0}-title {0}-desc", map.id)}});
  html.leaf("title", map.title, {{"id", map.id + "-title"}});
  html.leaf("desc", map.description, {{"id", map.id + "-desc"}});
  html.leaf("text", map.row_axis,
            {{"class", "head start"}, {"x", "0"}, {"y", svg_number(kMapTop - 5)}});
  draw_columns(html, map, at);
  for (size_t r = 0; r < map.rows.size(); ++r) {
    // Rows without numbers are lower than a label is: every second one has its own.
    if (map.has_numbers || r % 2 == 0) {
      html.leaf("text", map.rows[r],
                {{"class", "row-label"},
                 {"x", svg_number(kLeft - 5)},
                 {"y", svg_number(at.y(r) + (map.has_numbers ? 11.5 : 7.5))}});
    }
    for (size_t c = 0; c < map.columns.size(); ++c) draw_cell(html, map, at, r, c);
  }
  html.close();
}

void draw_legend(Markup& html, const HeatScale& scale) {
  html.open("ul", {{"class", "legend"}});
  for (size_t step = 0; step <= scale.ends.size(); ++step) {
    const double from = step == 0 ? 0 : scale.ends[step - 1];
    std::string range;
    if (step == scale.ends.size()) {
      range = fmt::format("{} {}", scale.is_falling ? "below" : "from", from);
    } else if (step == 0 && scale.is_falling) {
      range = fmt::format("from {}", scale.ends[0]);
    } else {
      range = scale.is_falling ? fmt::format("{} to {}", scale.ends[step], from)
                               : fmt::format("{} to {}", from, scale.ends[step]);
    }
    // A falling step reaches down from its end, so its mark is that of values just below.
    const double inside = scale.is_falling ? (step == 0 ? scale.ends[0] : from * (1 - 1e-9)) : from;
    html.open("li").leaf("span", scale.mark_of(inside),
                         {{"class", fmt::format("swatch s{}", step)}});
    html.text(fmt::format(" {} {}", range, scale.unit)).close();
  }
  html.close();
}

void draw_legend(Markup& html) {
  draw_legend(html, noise_scale());
  html.leaf(
      "p",
      fmt::format("! doubtful from {} nats, ✕ broken from {} nats (mean over the heads): they "
                  "order the work and decide nothing.",
                  thresholds::kDoubtfulNoise, thresholds::kBrokenNoise),
      {{"class", "small"}});
}

}  // namespace kv
