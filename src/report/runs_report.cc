#include "report/runs_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "report/numbers.h"
#include "report/page.h"
#include "report/plain_text.h"
#include "report/text_table.h"
#include "report/verdict_report.h"
#include "report/verdict_words.h"

namespace kv {
namespace {

/// The comparison with BF16 that the verdict rests on: the accepted arm's last one, else the last.
const ArmTable* decisive_table(const Verdict& verdict) {
  const ArmTable* out = nullptr;
  for (const ArmTable& table : verdict.tables) {
    const bool is_accepted = verdict.layout.empty() || table.arm == verdict.layout;
    if (table.reference == "bf16" && is_accepted) out = &table;
  }
  return out;
}

std::string worst_bucket(const Verdict& verdict) {
  const ArmTable* table = decisive_table(verdict);
  if (table == nullptr || table->buckets.empty()) return "-";
  const auto worst = std::ranges::min_element(table->buckets, {},
                                              [](const BucketRow& row) { return row.interval.lo; });
  return fmt::format("{}: {}", worst->bucket, points_interval(worst->diff, worst->interval));
}

std::string questions(const Verdict& verdict) {
  const ArmTable* table = decisive_table(verdict);
  if (table == nullptr) return "-";
  return fmt::format("{} ({})", grouped(table->overall.n), grouped(table->overall.documents));
}

std::string margin(const Verdict& verdict) {
  const Margins& used = verdict.options.margin;
  return fmt::format("{} / {}", significant(100 * used.bucket, 3),
                     significant(100 * used.overall, 3));
}

std::string capacity(const Verdict& verdict) {
  return verdict.capacity_gain > 0 ? fixed(verdict.capacity_gain, 3) + "x" : "-";
}

std::string outcome(const RunRow& run) {
  std::string out(name(run.verdict->outcome));
  if (!run.verdict->sub_reason.empty()) out += " (" + run.verdict->sub_reason + ")";
  if (!run.is_current) out += ", decision.json differs";
  return out;
}

const char* outcome_css(const Verdict& verdict) {
  if (is_accepting(verdict.outcome)) return "outcome accept";
  return is_rejecting(verdict.outcome) ? "outcome reject" : "outcome";
}

void add_run(Markup& html, const RunRow& run, size_t number) {
  html.open("section", {{"class", outcome_css(*run.verdict)},
                        {"aria-labelledby", fmt::format("run-{}", number)}});
  html.leaf("h3", fmt::format("{}: {}", run.folder, outcome_words(*run.verdict)),
            {{"id", fmt::format("run-{}", number)}});
  if (!run.verdict->sentence.empty()) html.leaf("p", run.verdict->sentence + ".");
  if (!run.is_current) {
    html.leaf("p",
              "Its decision.json is not what its records give; this page shows what they give.");
  }
  html.open("p").leaf("a", "The run's report", {{"href", run.link}}).close().close();
}

}  // namespace

std::string runs_page(std::span<const RunRow> runs) {
  const std::string title = fmt::format("kvscale: {} runs", runs.size());
  return make_page(title, [&](Markup& html) {
    html.leaf("h1", title);
    std::vector<HtmlRow> rows;
    for (const RunRow& run : runs) {
      rows.push_back({{{run.folder, false, "", true},
                       {run.model.name, false, "", true},
                       {run.prompts.source, false, "", true},
                       {run.verdict->options.target, false},
                       {outcome(run), false},
                       {run.verdict->layout.empty() ? "-" : run.verdict->layout, false, "", true},
                       {margin(*run.verdict)},
                       {worst_bucket(*run.verdict)},
                       {questions(*run.verdict)},
                       {capacity(*run.verdict)}},
                      ""});
    }
    add_table(html,
              "Margin in points, a bucket / overall; worst bucket: the one whose interval reaches "
              "lowest, difference from BF16 in points; questions (documents) of all buckets",
              {"run", "model", "text", "target", "verdict", "layout", "margin", "worst bucket",
               "questions", "capacity"},
              rows);
    open_section(html, "runs", "Each run");
    for (size_t i = 0; i < runs.size(); ++i) add_run(html, runs[i], i + 1);
    html.close();
  });
}

std::string runs_text(std::span<const RunRow> runs, const TextStyle& style) {
  const std::vector<TextColumn> columns = {{"run", false, true},         {"model", false, true},
                                           {"verdict", false, true},     {"margin", true, false},
                                           {"worst bucket", true, true}, {"capacity", true, false}};
  std::vector<std::vector<TextCell>> rows;
  for (const RunRow& run : runs) {
    rows.push_back({{printable(run.folder)},
                    {printable(run.model.name)},
                    {printable(outcome(run))},
                    {margin(*run.verdict)},
                    {printable(worst_bucket(*run.verdict))},
                    {capacity(*run.verdict)}});
  }
  return text_table(columns, rows, style);
}

}  // namespace kv
