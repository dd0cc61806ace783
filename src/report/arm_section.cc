#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/interval_chart.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/scan_section.h"

namespace kv {
namespace {

ChartRow chart_row(const ArmRow& arm) {
  ChartRow row;
  row.label = arm.record->arm;
  row.value = arm.record->kld;
  if (std::isfinite(arm.record->kld_se) && arm.record->kld_se > 0) {
    row.low = arm.record->kld - arm.record->kld_se;
    row.high = arm.record->kld + arm.record->kld_se;
  }
  row.note = fmt::format("{}, n {}", arm.kld_text(), grouped(arm.record->tokens));
  return row;
}

HtmlRow table_row(const ArmRow& arm, bool is_predicted) {
  const bool is_control = arm.is_control();
  HtmlRow row{{{arm.base(), false},
               {arm.bf16_layers(), false},
               {grouped(arm.record->tokens)},
               {fixed(arm.record->nll, 4)},
               {is_control ? "" : signed_fixed(arm.delta_nll, 4)},
               {arm.kld_text()}},
              arm.record->record_id};
  if (is_predicted) row.cells.push_back({arm.predicted_text()});
  row.cells.push_back({is_control ? "" : percent(arm.record->same_top)});
  row.cells.push_back({arm.gain ? fixed(*arm.gain, 3) + "x" : ""});
  row.cells.push_back({arm.record->record_id, false});
  return row;
}

}  // namespace

void add_arm_section(Markup& html, const std::vector<ArmRow>& arms) {
  open_section(html, "arms", "What each layout costs");
  IntervalChart chart;
  chart.id = "kld";
  chart.title = "KLD from BF16 by arm";
  chart.axis = "KLD from BF16, nats a token (log scale)";
  if (kld_head(arms) != "KLD") chart.axis += ", ± one standard error";
  chart.is_log = true;
  std::vector<std::string> words;
  std::vector<HtmlRow> rows;
  const bool is_predicted = has_predictions(arms);
  for (const ArmRow& arm : arms) {
    rows.push_back(table_row(arm, is_predicted));
    if (arm.is_control()) continue;
    chart.rows.push_back(chart_row(arm));
    words.push_back(fmt::format("{}: {}", arm.record->arm, arm.kld_text()));
  }
  chart.description = fmt::format("{}.", fmt::join(words, "; "));
  if (!chart.rows.empty()) {
    html.open("figure");
    draw(html, chart);
    html.close();
  }
  std::vector<std::string> heads = {"arm",       "BF16 layers", "tokens n",
                                    "NLL, nats", "to BF16",     kld_head(arms) + ", nats",
                                    "same top",  "capacity",    "record"};
  if (is_predicted) heads.insert(heads.begin() + 6, "predicted");
  add_table(html,
            fmt::format("Quality per scored token of the same text; {}capacity: tokens in the same "
                        "memory, relative to BF16. A standard error needs at least two documents",
                        is_predicted ? "predicted: KLD by the pass of the control alone; " : ""),
            heads, rows);
  html.close();
}

}  // namespace kv
