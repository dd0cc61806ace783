#include <fmt/format.h>

#include "report/arm_table.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/range_grid.h"
#include "report/scan_report.h"
#include "report/scan_section.h"

namespace kv {
namespace {

void add_shortlists(Markup& html, const ScanReport& report) {
  std::vector<HtmlRow> rows;
  for (const auto& [layout, layers] : report.bf16_layers) {
    rows.push_back({{{layout_label(layout), false}, {list_in_order(layers), false}}, ""});
  }
  if (rows.empty()) return;
  add_table(html, "Layers to keep in BF16 under each layout, worst first", {"layout", "layers"},
            rows);
}

}  // namespace

std::string scan_page(const ScanReport& report) {
  const RangeGrid grid = make_range_grid(report.ranges);
  std::vector<ArmRow> arms = make_arm_rows(report.arms, report.capacities);
  add_predictions(report.ranges, arms);
  const std::string title = "kvscale scan: " + report.model.name;
  return make_page(title, [&](Markup& html) {
    html.leaf("h1", title);
    html.open("div", {{"class", "outcome"}}).leaf("p", scan_sentence(report), {{"class", "lead"}});
    html.close();
    add_facts(html, model_list(report.model, report.prompts));
    add_range_section(html, grid);
    add_arm_section(html, arms);
    add_shortlists(html, report);
    open_section(html, "run", "What ran");
    add_facts(html, run_list(report.run));
    html.close();
  });
}

}  // namespace kv
