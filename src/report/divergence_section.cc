#include "report/divergence_section.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "decide/thresholds.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/plain_text.h"
#include "report/step_chart.h"
#include "report/text_table.h"

namespace kv {
namespace {

constexpr size_t kMostCharts = 12;  // more are read no better than the table

std::string share_words(double share, const Interval& interval) {
  return fmt::format("{} [{}, {}]", percent(share), fixed(100 * interval.lo, 1),
                     fixed(100 * interval.hi, 1));
}

/// S(t).
double share_after(const DivergenceRow& row, int64_t tokens) {
  double out = 1;
  for (const DivergencePoint& point : row.curve) {
    if (point.index <= tokens) out = point.survival;
  }
  return out;
}

StepCurve curve_of(const DivergenceRow& row) {
  StepCurve out;
  out.label = row.arm;
  out.note =
      fmt::format("{}, n {}", share_words(row.agreeing, row.agreeing_interval), grouped(row.n));
  for (const DivergencePoint& point : row.curve) {
    out.steps.emplace_back(static_cast<double>(point.index), point.survival);
  }
  out.end = static_cast<double>(row.longest);
  out.end_interval = row.agreeing_interval;
  return out;
}

/// Arms of one block and bucket; those beyond what a chart can hold are in the table.
StepChart chart_of(const std::vector<const DivergenceRow*>& rows, size_t number) {
  StepChart out;
  out.id = fmt::format("divergence-{}", number);
  out.title = fmt::format("Answers that are still BF16's, block {}, {} tokens", rows.front()->block,
                          rows.front()->bucket);
  out.axis = "generated tokens; still the same, %, 95 % interval at the end";
  std::vector<std::string> words;
  for (const DivergenceRow* row : rows) {
    if (out.curves.size() == kMostStepCurves) break;
    out.curves.push_back(curve_of(*row));
    words.push_back(fmt::format("{}: {} after {} tokens", row->arm,
                                share_words(row->agreeing, row->agreeing_interval), row->longest));
  }
  out.description = fmt::format("{}.", fmt::join(words, "; "));
  return out;
}

void add_charts(Markup& html, const std::vector<DivergenceRow>& rows) {
  std::vector<std::pair<std::string, std::string>> places;
  for (const DivergenceRow& row : rows) {
    const std::pair place(row.block, row.bucket);
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  if (places.size() > kMostCharts) return;
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<const DivergenceRow*> here;
    for (const DivergenceRow& row : rows) {
      if (std::pair(row.block, row.bucket) == places[i]) here.push_back(&row);
    }
    html.leaf("h3", fmt::format("Block {}, {} tokens", places[i].first, places[i].second));
    html.open("figure");
    draw(html, chart_of(here, i + 1));
    html.close();
  }
}

void add_shares(Markup& html, const std::vector<DivergenceRow>& rows) {
  int64_t longest = 1;
  for (const DivergenceRow& row : rows) longest = std::max(longest, row.longest);
  std::vector<std::string> heads = {"arm", "block", "up to tokens"};
  std::vector<int64_t> marks;
  for (int64_t mark = 1; mark <= longest; mark *= 2) {
    marks.push_back(mark);
    heads.push_back(fmt::format("after {}", mark));
  }
  std::vector<HtmlRow> table;
  for (const DivergenceRow& row : rows) {
    HtmlRow& out = table.emplace_back();
    out.cells = {{row.arm, false}, {row.block, false}, {row.bucket}};
    for (const int64_t mark : marks) {
      out.cells.push_back({mark <= row.longest ? percent(share_after(row, mark)) : ""});
    }
  }
  add_table(html, "Answers that are still BF16's after so many generated tokens (Kaplan and Meier)",
            heads, table);
}

bool is_sampled(const std::vector<DivergenceRow>& rows) {
  return std::ranges::any_of(rows, &DivergenceRow::is_sampled);
}

}  // namespace

std::string divergence_heading(const std::vector<DivergenceRow>& rows) {
  return is_sampled(rows) ? "Divergence of sampled answers" : "Divergence of greedy answers";
}

std::string divergence_words(const std::vector<DivergenceRow>& rows) {
  return fmt::format(
      "After how many tokens an arm's answer leaves BF16's to the same question{}. It decides "
      "nothing, for two right answers may differ; a divergence where BF16's choice led by less "
      "than {} nats is a near tie and no evidence of damage.",
      is_sampled(rows) ? ", drawn with the same random numbers" : "", thresholds::kNearTie);
}

std::vector<std::string> divergence_heads() {
  return {"arm",      "block",     "bucket",     "n (docs)",
          "diverged", "near ties", "still same", "half after"};
}

std::vector<std::string> divergence_cells(const DivergenceRow& row) {
  return {row.arm,
          row.block,
          row.bucket,
          fmt::format("{} ({})", grouped(row.n), grouped(row.documents)),
          grouped(row.diverged),
          grouped(row.near_ties),
          share_words(row.agreeing, row.agreeing_interval),
          row.median ? fmt::format("{}", *row.median) : fmt::format("> {}", row.longest)};
}

void add_divergence_section(Markup& html, const std::vector<DivergenceRow>& rows) {
  if (rows.empty()) return;
  open_section(html, "divergence", divergence_heading(rows));
  html.leaf("p", divergence_words(rows), {{"class", "small"}});
  add_charts(html, rows);
  std::vector<std::string> heads = divergence_heads();
  heads.emplace_back("same but for near ties");
  heads.emplace_back("in a thousand tokens");
  std::vector<HtmlRow> table;
  for (const DivergenceRow& row : rows) {
    HtmlRow& out = table.emplace_back();
    for (const std::string& cell : divergence_cells(row)) {
      out.cells.push_back({cell, out.cells.size() > 1});
    }
    out.cells.push_back({share_words(row.undamaged, row.undamaged_interval)});
    out.cells.push_back({significant(1000 * row.hazard, 3)});
  }
  add_table(html,
            "Where answers part from BF16's: still same, with its 95 % interval over documents, at "
            "the longest answer; half after: tokens by which half have diverged; the last column: "
            "divergences in a thousand generated tokens",
            heads, table);
  add_shares(html, rows);
  html.close();
}

std::string divergence_text(const std::vector<DivergenceRow>& rows, const TextStyle& style) {
  if (rows.empty()) return "";
  std::vector<TextColumn> columns;
  for (const std::string& head : divergence_heads()) {
    columns.push_back({head, !columns.empty(), true});
  }
  std::vector<std::vector<TextCell>> cells;
  for (const DivergenceRow& row : rows) {
    std::vector<TextCell>& out = cells.emplace_back();
    for (const std::string& cell : divergence_cells(row)) out.push_back({printable(cell)});
  }
  return paragraph(divergence_words(rows), style) + text_table(columns, cells, style);
}

}  // namespace kv
