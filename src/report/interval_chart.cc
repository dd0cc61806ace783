#include "report/interval_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/svg.h"

namespace kv {
namespace {

// In user units; the style sheet shows them 1 to 1.5 times as large, so a phone shows 10 px text.
constexpr double kMargin = 10, kRowHeight = 34, kChartTop = 18, kAxisHeight = 40;
// Of the label line: what a row's note leaves at about 5.4 units a character.
constexpr double kCharacter = 5.4;

struct Axis {
  double low = 0, high = 1;
  bool is_log = false;

  double x(double value) const {
    const double from = is_log ? std::log10(low) : low, to = is_log ? std::log10(high) : high;
    const double at = is_log ? std::log10(std::max(value, low)) : value;
    return kMargin + std::clamp((at - from) / (to - from), 0.0, 1.0) * (kSvgWidth - 2 * kMargin);
  }
};

std::vector<double> shown_values(const IntervalChart& chart) {
  std::vector<double> out;
  const auto add = [&](double value) {
    if (std::isfinite(value) && (!chart.is_log || value > 0)) out.push_back(value);
  };
  for (const ChartRow& row : chart.rows) {
    add(row.value);
    add(row.low);
    add(row.high);
  }
  for (const ChartLine& line : chart.lines) add(line.value);
  return out;
}

Axis axis_of(const IntervalChart& chart) {
  const std::vector<double> values = shown_values(chart);
  if (values.empty()) return {chart.is_log ? 0.001 : 0, 1, chart.is_log};
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  if (chart.is_log) {
    const double low = std::pow(10, std::floor(std::log10(*least)));
    const double high = std::pow(10, std::ceil(std::log10(*largest)));
    return {low, high > low ? high : 10 * low, true};
  }
  const double span = *largest > *least ? *largest - *least : 1;
  return {*least - 0.06 * span, *largest + 0.06 * span, false};
}

std::vector<double> ticks_of(const Axis& axis) {
  if (!axis.is_log) return linear_ticks(axis.low, axis.high, 5);
  std::vector<double> out;
  for (double tick = axis.low; tick <= axis.high * 1.001; tick *= 10) out.push_back(tick);
  return out;
}

void draw_line(Markup& html, const std::string& css, double x1, double y1, double x2, double y2) {
  html.empty("line", {{"class", css},
                      {"x1", svg_number(x1)},
                      {"y1", svg_number(y1)},
                      {"x2", svg_number(x2)},
                      {"y2", svg_number(y2)}});
}

void draw_axis(Markup& html, const Axis& axis, const std::string& label, double bottom) {
  draw_line(html, "axis", kMargin, bottom, kSvgWidth - kMargin, bottom);
  for (const double tick : ticks_of(axis)) {
    const double x = axis.x(tick);
    draw_line(html, "grid", x, kChartTop, x, bottom);
    html.leaf("text", significant(tick, 6),
              {{"class", "tick"}, {"x", svg_number(x)}, {"y", svg_number(bottom + 13)}});
  }
  html.leaf(
      "text", label,
      {{"class", "axis-label"}, {"x", svg_number(kSvgWidth / 2)}, {"y", svg_number(bottom + 30)}});
}

void draw_reference(Markup& html, const Axis& axis, const ChartLine& line, double bottom) {
  const double x = axis.x(line.value);
  draw_line(html, line.is_dashed ? "margin" : "zero", x, kChartTop - 4, x, bottom);
  const char* anchor = x < 60 ? "start" : x > kSvgWidth - 60 ? "end" : "middle";
  html.leaf("text", line.label,
            {{"class", "ref"},
             {"text-anchor", anchor},
             {"x", svg_number(x)},
             {"y", svg_number(kChartTop - 7)}});
}

/// The label, cut where it would run into the note; the whole one is in the table beside the chart.
std::string fitting_label(const ChartRow& row) {
  const int free =
      static_cast<int>((kSvgWidth - 2 * kMargin) / kCharacter) - columns(printable(row.note)) - 2;
  const std::string label = printable(row.label);
  if (columns(label) <= free || free < 2) return label;
  return wrap(label, free - 1).front() + "…";
}

void draw_row(Markup& html, const Axis& axis, const ChartRow& row, double top) {
  html.leaf("text", fitting_label(row),
            {{"class", "row"}, {"x", svg_number(kMargin)}, {"y", svg_number(top + 12)}});
  html.leaf(
      "text", row.note,
      {{"class", "note"}, {"x", svg_number(kSvgWidth - kMargin)}, {"y", svg_number(top + 12)}});
  if (!std::isfinite(row.value)) return;
  const double y = top + 23, x = axis.x(row.value);
  const std::string css = row.is_flagged ? "flagged" : "plain";
  if (std::isfinite(row.low) && std::isfinite(row.high)) {
    const double from = axis.x(row.low), to = axis.x(row.high);
    draw_line(html, "bar " + css, from, y, to, y);
    draw_line(html, "bar " + css, from, y - 4, from, y + 4);
    draw_line(html, "bar " + css, to, y - 4, to, y + 4);
  }
  if (row.is_flagged) {
    html.empty("rect", {{"class", "dot " + css},
                        {"x", svg_number(x - 4)},
                        {"y", svg_number(y - 4)},
                        {"width", "8"},
                        {"height", "8"}});
  } else {
    html.empty("circle",
               {{"class", "dot " + css}, {"cx", svg_number(x)}, {"cy", svg_number(y)}, {"r", "4"}});
  }
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int count) {
  const double raw = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw) step = factor * power;
  }
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    out.push_back(i == 0 ? 0 : i * step);
  }
  return out;
}

void draw(Markup& html, const IntervalChart& chart) {
  const Axis axis = axis_of(chart);
  const double bottom = kChartTop + kRowHeight * static_cast<double>(chart.rows.size());
  html.open("svg", {{"id", chart.id},
                    {"class", "chart"},
                    {"role", "img"},
                    {"viewBox", fmt::format("0 0 {} {}", kSvgWidth, bottom + kAxisHeight)},
                    {"aria-labelledby", fmt::format("{0}-title {0}-desc", chart.id)}});
  html.leaf("title", chart.title, {{"id", chart.id + "-title"}});
  html.leaf("desc", chart.description, {{"id", chart.id + "-desc"}});
  draw_axis(html, axis, chart.axis, bottom);
  for (const ChartLine& line : chart.lines) draw_reference(html, axis, line, bottom);
  for (size_t i = 0; i < chart.rows.size(); ++i) {
    draw_row(html, axis, chart.rows[i], kChartTop + kRowHeight * static_cast<double>(i));
  }
  html.close();
}

}  // namespace kv
