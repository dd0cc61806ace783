#include "report/step_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kvscale/error.h"
#include "report/interval_chart.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/svg.h"

namespace kv {
namespace {

// In user units.
constexpr double kPlotLeft = 34, kPlotRight = kSvgWidth - 12, kPlotTop = 8, kPlotBottom = 138;
constexpr double kLegendTop = kPlotBottom + 38, kLegendRow = 15, kSample = 28;
constexpr std::array<const char*, 4> kDashes = {"none", "7 3", "2 2", "9 3 2 3"};

struct Plane {
  double end = 1, low = 0;  // x to the right, share at the bottom

  double x(double value) const { return kPlotLeft + value / end * (kPlotRight - kPlotLeft); }
  double y(double share) const {
    return kPlotBottom - (std::max(share, low) - low) / (1 - low) * (kPlotBottom - kPlotTop);
  }
};

Plane plane_of(const StepChart& chart) {
  Plane out;
  double lowest = 1;
  for (const StepCurve& curve : chart.curves) {
    out.end = std::max(out.end, curve.end);
    lowest = std::min(lowest, curve.end_interval.lo);
    if (!curve.steps.empty()) lowest = std::min(lowest, curve.steps.back().second);
  }
  // A tenth at least, so that noise of one answer in a thousand does not look like a fall.
  out.low = std::max(0.0, std::floor(std::min(lowest, 0.9) * 20) / 20);
  return out;
}

void draw_rule(Markup& html, const char* css, double x1, double y1, double x2, double y2) {
  html.empty("line", {{"class", css},
                      {"x1", svg_number(x1)},
                      {"y1", svg_number(y1)},
                      {"x2", svg_number(x2)},
                      {"y2", svg_number(y2)}});
}

void draw_axes(Markup& html, const StepChart& chart, const Plane& plane) {
  for (const double share : linear_ticks(plane.low, 1, 4)) {
    const double y = plane.y(share);
    draw_rule(html, "grid", kPlotLeft, y, kPlotRight, y);
    html.leaf("text", significant(100 * share, 3),
              {{"class", "row-label"}, {"x", svg_number(kPlotLeft - 4)}, {"y", svg_number(y + 3)}});
  }
  draw_rule(html, "axis", kPlotLeft, kPlotBottom, kPlotRight, kPlotBottom);
  for (const double tick : linear_ticks(0, plane.end, 6)) {
    html.leaf(
        "text", significant(tick, 6),
        {{"class", "tick"}, {"x", svg_number(plane.x(tick))}, {"y", svg_number(kPlotBottom + 12)}});
  }
  html.leaf("text", chart.axis,
            {{"class", "axis-label"},
             {"x", svg_number((kPlotLeft + kPlotRight) / 2)},
             {"y", svg_number(kPlotBottom + 25)}});
}

/// The same colour and dashes for a curve and its line in the legend.
void draw_path(Markup& html, size_t number, const std::string& points) {
  html.empty("polyline", {{"class", number < kDashes.size() ? "bar plain" : "bar flagged"},
                          {"fill", "none"},
                          {"stroke-dasharray", kDashes[number % kDashes.size()]},
                          {"points", points}});
}

std::string point(double x, double y) { return svg_number(x) + "," + svg_number(y) + " "; }

void draw_curve(Markup& html, const Plane& plane, const StepCurve& curve, size_t number) {
  double y = plane.y(1);
  std::string points = point(plane.x(0), y);
  for (const auto& [at, share] : curve.steps) {
    points += point(plane.x(at), y);
    y = plane.y(share);
    points += point(plane.x(at), y);
  }
  points += point(plane.x(curve.end), y);
  points.pop_back();
  draw_path(html, number, points);
  // Beside each other where several end at the same place.
  const double x = plane.x(curve.end) + 1.5 * static_cast<double>(number);
  const double from = plane.y(curve.end_interval.lo), to = plane.y(curve.end_interval.hi);
  const char* css = number < kDashes.size() ? "bar plain" : "bar flagged";
  draw_rule(html, css, x, from, x, to);
  draw_rule(html, css, x - 2, from, x + 2, from);
  draw_rule(html, css, x - 2, to, x + 2, to);
}

/// The label, cut where it would run into the note; the whole one is in the table below.
std::string legend_label(const StepCurve& curve) {
  constexpr double kCharacter = 5.4;  // of a 10 px text, on average
  const int room = static_cast<int>((kSvgWidth - 26 - kSample) / kCharacter);
  const int free = std::max(4, room - columns(printable(curve.note)) - 2);
  const std::string label = printable(curve.label);
  return columns(label) <= free ? label : wrap(label, free - 1).front() + "…";
}

void draw_legend(Markup& html, const StepCurve& curve, size_t number) {
  const double y = kLegendTop + kLegendRow * static_cast<double>(number);
  draw_path(html, number, point(10, y) + svg_number(10 + kSample) + "," + svg_number(y));
  html.leaf("text", legend_label(curve),
            {{"class", "row"}, {"x", svg_number(16 + kSample)}, {"y", svg_number(y + 3.5)}});
  html.leaf("text", curve.note,
            {{"class", "note"}, {"x", svg_number(kSvgWidth - 10)}, {"y", svg_number(y + 3.5)}});
}

}  // namespace

void draw(Markup& html, const StepChart& chart) {
  if (chart.curves.size() > kMostStepCurves) {
    throw ValueError(fmt::format("chart {}: expected at most {} curves, found {}", chart.id,
                                 kMostStepCurves, chart.curves.size()));
  }
  const Plane plane = plane_of(chart);
  const double height = kLegendTop + kLegendRow * static_cast<double>(chart.curves.size());
  html.open("svg", {{"id", chart.id},
                    {"class", "chart"},
                    {"role", "img"},
                    {"viewBox", fmt::format("0 0 {} {}", kSvgWidth, height)},
                    {"aria-labelledby", fmt::format("{0}-title {0}-desc", chart.id)}});
  html.leaf("title", chart.title, {{"id", chart.id + "-title"}});
  html.leaf("desc", chart.description, {{"id", chart.id + "-desc"}});
  draw_axes(html, chart, plane);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    draw_curve(html, plane, chart.curves[i], i);
    draw_legend(html, chart.curves[i], i);
  }
  html.close();
}

}  // namespace kv
