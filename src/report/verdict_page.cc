#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "report/arm_table.h"
#include "report/divergence_section.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/record_section.h"
#include "report/scan_section.h"
#include "report/verdict_report.h"
#include "report/verdict_section.h"
#include "report/verdict_words.h"

namespace kv {
namespace {

void add_outcome(Markup& html, const Verdict& verdict) {
  const char* css = is_accepting(verdict.outcome)            ? "outcome accept"
                    : is_rejecting(verdict.outcome) ? "outcome reject"
                                                             : "outcome";
  html.open("div", {{"class", css}});
  html.leaf("p", outcome_words(verdict), {{"class", "word"}});
  html.open("p").leaf("code", name(verdict.outcome));
  if (!verdict.sub_reason.empty()) html.text(" ").leaf("code", verdict.sub_reason);
  html.close();
  if (!verdict.sentence.empty()) html.leaf("p", verdict.sentence + ".");
  html.leaf("p", "Margin: " + margin_words(verdict.options) + ".", {{"class", "small"}});
  if (verdict.capacity_gain > 0) {
    html.leaf("p",
              fmt::format("Capacity: {}x the tokens of BF16.", fixed(verdict.capacity_gain, 3)),
              {{"class", "small"}});
  }
  html.close();
}

void add_reasons(Markup& html, const Verdict& verdict) {
  if (verdict.reasons.empty()) return;
  open_section(html, "reasons", "Reasons");
  html.open("ul");
  for (const Reason& reason : verdict.reasons) {
    html.open("li").leaf("span", reason.rule, {{"class", "rule"}}).text(": " + reason.text);
    if (!reason.record.empty()) {
      html.text(" [")
          .leaf("a", reason.record, {{"href", "#" + anchor_of(reason.record)}})
          .text("]");
    }
    html.close();
  }
  html.close().close();
}

void add_list(Markup& html, const std::string& id, const std::string& title,
              const std::vector<std::string>& items) {
  if (items.empty()) return;
  open_section(html, id, title);
  html.open("ul");
  for (const std::string& item : items) html.leaf("li", item);
  html.close().close();
}

void add_launch(Markup& html, const Verdict& verdict) {
  if (verdict.launch.empty()) return;
  open_section(html, "launch", "Launch");
  for (const auto& [engine, lines] : verdict.launch) {
    html.leaf("h3", engine).leaf("pre", lines.flags);
    if (lines.notes.empty()) continue;
    html.open("ul");
    for (const std::string& note : lines.notes) html.leaf("li", note);
    html.close();
  }
  html.close();
}

void add_next(Markup& html, const Verdict& verdict) {
  if (verdict.next.empty()) return;
  open_section(html, "next", "Next");
  for (const NextCommand& next : verdict.next) {
    html.leaf("p", next.text).leaf("pre", next.command);
  }
  html.close();
}

/// The records that reasons and other rows point at.
std::vector<std::string> named_records(const Verdict& verdict) {
  std::vector<std::string> out;
  for (const Reason& reason : verdict.reasons) out.push_back(reason.record);
  for (const AblationPoint& point : verdict.ablation) out.push_back(point.record);
  return out;
}

/// Names those that no row of the page shows, so that no link leads nowhere.
void add_other_records(Markup& html, const Verdict& verdict, std::set<std::string> shown) {
  std::vector<std::string> missing;
  for (const std::string& record : named_records(verdict)) {
    if (!record.empty() && shown.insert(record).second) missing.push_back(record);
  }
  if (missing.empty()) return;
  open_section(html, "records", "Other records that were named");
  html.leaf("p", "They stand under these ids in the run's records.", {{"class", "small"}});
  html.open("ul");
  for (const std::string& record : missing) {
    html.leaf("li", record, {{"id", anchor_of(record)}});
  }
  html.close().close();
}

bool has_control(const std::vector<ArmRecord>& arms) {
  return std::any_of(arms.begin(), arms.end(), [](const ArmRecord& r) { return r.arm == "bf16"; });
}

/// Ids of the rows that the sections of this page have.
std::set<std::string> shown_records(const VerdictReport& report) {
  std::set<std::string> shown;
  for (const ArmTable& table : report.verdict.tables) {
    for (const ComparisonRow& row : rows_of(table)) shown.insert(row.id);
  }
  for (const ControlBucket& row : report.verdict.control) shown.insert(row.id);
  for (const RangeRecord& record : report.records.ranges) shown.insert(record.record_id);
  if (has_control(report.records.arms)) {
    for (const ArmRecord& record : report.records.arms) shown.insert(record.record_id);
  }
  for (const AblationPoint& point : report.verdict.ablation) {
    if (!has_control(report.records.arms)) shown.insert(point.record);
  }
  for (const CapacityRecord& record : report.records.capacities) shown.insert(record.record_id);
  for (const SupportRecord& record : report.records.supports) shown.insert(record.record_id);
  for (const CalibrationRecord& record : report.records.calibrations) {
    shown.insert(record.record_id);
  }
  return shown;
}

void add_sections(Markup& html, const VerdictReport& report) {
  const Verdict& verdict = report.verdict;
  const Records& records = report.records;
  add_launch(html, verdict);
  add_next(html, verdict);
  add_reasons(html, verdict);
  add_list(html, "notices", "Notices", verdict.notices);
  add_comparison_section(html, verdict);
  add_control_section(html, verdict);
  add_ablation_section(html, verdict, !has_control(records.arms));
  add_position_section(html, report);
  add_divergence_section(html, verdict.divergence);
  if (!records.ranges.empty()) add_range_section(html, make_range_grid(records.ranges));
  if (has_control(records.arms)) {
    add_arm_section(html, make_arm_rows(records.arms, records.capacities));
  }
  add_system_sections(html, records);
  add_method_section(html, verdict);
  add_other_records(html, verdict, shown_records(report));
  open_section(html, "run", "What ran");
  add_facts(html, run_list(report.run));
  html.close();
  add_provenance_section(html, report);
}

}  // namespace

std::string verdict_page(const VerdictReport& report) {
  const std::string title = "kvscale decide: " + report.model.name;
  return make_page(title, [&](Markup& html) {
    html.leaf("h1", title);
    add_outcome(html, report.verdict);
    add_facts(html, model_list(report.model, report.prompts));
    Markup draft;  // which sections there are is known when they are written
    add_sections(draft, report);
    add_contents(html, draft.sections());
    add_sections(html, report);
  });
}

}  // namespace kv
