#include "report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "decide/flags.h"
#include "decide/thresholds.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/svg.h"

namespace kv {
namespace {

constexpr double kLeft = 34, kMapTop = 30, kNumberHeight = 17, kPlainHeight = 9;

// Upper ends of the colours h0, h1, ...: two steps below each limit of decide, one above.
constexpr std::array<double, 6> kSteps = {
    0.1, 0.2, thresholds::kDoubtfulNoise, 0.6, thresholds::kBrokenNoise, 2.0};

size_t step_of(double noise) {
  return static_cast<size_t>(
      std::find_if(kSteps.begin(), kSteps.end(), [&](double end) { return noise < end; }) -
      kSteps.begin());
}

/// "!" for doubtful, "x" for broken.
std::string mark_of(double noise) {
  const LayerFlag flag = flag_layer(noise);
  return flag == LayerFlag::kBroken ? "✕ " : flag == LayerFlag::kDoubtful ? "! " : "";
}

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
  const double noise = map.values[r][c];
  if (std::isnan(noise)) return;
  const size_t step = step_of(noise);
  html.open("rect", {{"class", fmt::format("h{}{}", step, mark_of(noise).empty() ? "" : " marked")},
                     {"x", svg_number(at.x(c))},
                     {"y", svg_number(at.y(r))},
                     {"width", svg_number(at.cell_width - (map.has_numbers ? 2 : 0.5))},
                     {"height", svg_number(at.cell_height - (map.has_numbers ? 2 : 0.5))}});
  html.leaf("title", fmt::format("{} {}, {}: {} nats", map.row_axis, map.rows[r], map.columns[c],
                                 fixed(noise, 3)));
  html.close();
  if (!map.has_numbers) return;
  html.leaf("text", mark_of(noise) + fixed(noise, 2),
            {{"class", fmt::format("cell t{}", step)},
             {"x", svg_number(at.x(c) + at.cell_width / 2 - 1)},
             {"y", svg_number(at.y(r) + 11.5)}});
}

}  // namespace

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
    html.leaf("text", map.rows[r],
              {{"class", "row-label"},
               {"x", svg_number(kLeft - 5)},
               {"y", svg_number(at.y(r) + (map.has_numbers ? 11.5 : 7.5))}});
    for (size_t c = 0; c < map.columns.size(); ++c) draw_cell(html, map, at, r, c);
  }
  html.close();
}

void draw_legend(Markup& html) {
  html.open("ul", {{"class", "legend"}});
  for (size_t step = 0; step <= kSteps.size(); ++step) {
    const double from = step == 0 ? 0 : kSteps[step - 1];
    const std::string range = step == kSteps.size() ? fmt::format("from {}", from)
                                                    : fmt::format("{} to {}", from, kSteps[step]);
    html.open("li").leaf("span", mark_of(from), {{"class", fmt::format("swatch s{}", step)}});
    html.text(fmt::format(" {} nats", range)).close();
  }
  html.close();
  html.leaf(
      "p",
      fmt::format("! doubtful from {} nats, ✕ broken from {} nats (mean over the heads): they "
                  "order the work and decide nothing.",
                  thresholds::kDoubtfulNoise, thresholds::kBrokenNoise),
      {{"class", "small"}});
}

}  // namespace kv
