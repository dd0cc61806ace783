#include "report/verdict_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/interval_chart.h"
#include "report/numbers.h"
#include "report/page.h"
#include "report/verdict_report.h"
#include "report/verdict_words.h"

namespace kv {
namespace {

std::string reference_name(const ArmTable& table) {
  return table.reference == "bf16" ? "BF16" : table.reference;
}

/// The share of intervals that cover the truth: two-sided, 1 - 2 alpha.
std::string confidence(const ArmTable& table) {
  return significant(100 * (1 - 2 * table.look.alpha), 4) + " %";
}

IntervalChart difference_chart(const ArmTable& table, const DecideOptions& options, size_t number) {
  IntervalChart chart;
  chart.id = fmt::format("difference-{}", number);
  chart.title =
      fmt::format("{} minus {} by bucket, block {}", table.arm, reference_name(table), table.block);
  chart.axis = fmt::format("difference of the mean score, points, {} interval", confidence(table));
  const bool is_absolute = options.margin.recovery == 0;
  chart.lines = {{0, "0", false}};
  if (is_absolute) {
    chart.lines.push_back({-100 * options.margin.bucket,
                           fmt::format("margin -{}", significant(100 * options.margin.bucket, 3)),
                           true});
  }
  std::vector<std::string> words;
  for (const ComparisonRow& row : rows_of(table)) {
    const bool is_bucket = is_absolute && row.margin == options.margin.bucket &&
                           row.label != "overall" && row.label != "validity";
    const std::string label =
        is_bucket ? row.label
                  : fmt::format("{} (margin {})", row.label, significant(100 * row.margin, 3));
    chart.rows.push_back(
        {label, 100 * row.diff, 100 * row.interval.lo, 100 * row.interval.hi,
         fmt::format("{}, n {}", points_interval(row.diff, row.interval), grouped(row.n)),
         !is_non_inferior(row.verdict)});
    words.push_back(fmt::format("{}: {}, {}", row.label, points_interval(row.diff, row.interval),
                                verdict_words(row.verdict)));
  }
  chart.description = fmt::format("Points: {}.", fmt::join(words, "; "));
  return chart;
}

HtmlRow comparison_row(const ComparisonRow& row) {
  return {{{row.label, false},
           {grouped(row.n)},
           {grouped(row.documents)},
           {fixed(100 * row.mean_ctrl, 1)},
           {fixed(100 * row.mean_cand, 1)},
           {points_interval(row.diff, row.interval)},
           {count_text(row.losses)},
           {count_text(row.gains)},
           {significant(row.deff, 3)},
           {significant(100 * row.margin, 3)},
           {significant(row.p_ni, 2)},
           {significant(row.p_loss_holm, 2)},
           {verdict_words(row.verdict), false},
           {row.note, false}},
          row.id};
}

void add_comparison_table(Markup& html, const ArmTable& table) {
  std::vector<HtmlRow> rows;
  for (const ComparisonRow& row : rows_of(table)) rows.push_back(comparison_row(row));
  add_table(
      html,
      fmt::format("Scores in points (of 100); difference {} minus {} with its {} interval; lost: "
                  "right under {} and wrong under {}; deff: examples that count as one",
                  table.arm, reference_name(table), confidence(table), reference_name(table),
                  table.arm),
      {"bucket", "n", "documents", reference_name(table), table.arm, "difference", "lost", "won",
       "deff", "margin", "p not worse", "p loss (Holm)", "verdict", "note"},
      rows);
  html.leaf("p",
            fmt::format("Sign of the buckets: p {} (Holm); loss growing with length: p {} (Holm); "
                        "heterogeneity of the buckets: p {}; persistent shift: {}.",
                        significant(table.p_sign_holm, 2), significant(table.p_trend_holm, 2),
                        significant(table.p_heterogeneity, 2), name(table.shift)),
            {{"class", "small"}});
  html.leaf("p",
            fmt::format("Look {} of {}: intervals reach {} standard errors, so that all looks "
                        "together keep the one-sided level {}; a shift is called at adjusted p up "
                        "to {}.",
                        table.look.number, table.look.of, significant(table.look.bound, 4),
                        significant(table.look.alpha, 3), significant(table.look.shift_level, 3)),
            {{"class", "small"}});
}

void add_capacities(Markup& html, const Records& records) {
  std::vector<HtmlRow> rows;
  for (const CapacityRecord& record : records.capacities) {
    rows.push_back({{{record.arm, false},
                     {grouped(record.tokens)},
                     {format_bytes(record.bf16_bytes)},
                     {format_bytes(record.arm_bytes)},
                     {format_bytes(record.allocated_bytes)},
                     {format_bytes(record.planned_bytes)},
                     {fixed(record.gain(), 3) + "x"},
                     {record.record_id, false}},
                    record.record_id});
  }
  if (rows.empty()) return;
  add_table(html, "Capacity: bytes of the cache for one sequence",
            {"arm", "tokens", "BF16", "arm", "allocated", "planned", "gain", "record"}, rows);
  html.leaf(
      "p",
      "Capacity is bytes and needs no engine. From which length on decoding with this cache is "
      "also faster (the break-even) was not measured: times of this machine say nothing of the "
      "engine that will serve.",
      {{"class", "small"}});
}

void add_supports(Markup& html, const Records& records) {
  std::vector<HtmlRow> rows;
  for (const SupportRecord& record : records.supports) {
    rows.push_back({{{record.layout, false},
                     {record.target, false},
                     {record.supported ? "yes" : "no", false},
                     {record.reason, false},
                     {record.record_id, false}},
                    record.record_id});
  }
  if (rows.empty()) return;
  add_table(html, "What the engine that will serve runs",
            {"layout", "target", "supported", "why", "record"}, rows);
}

void add_calibrations(Markup& html, const Records& records) {
  std::vector<HtmlRow> rows;
  for (const CalibrationRecord& record : records.calibrations) {
    rows.push_back({{{record.scale_file, false},
                     {record.scale_file_sha256.substr(0, 16), false},
                     {grouped(record.examples)},
                     {grouped(record.tokens)},
                     {grouped(record.max_tokens)},
                     {fmt::format("{}", fmt::join(record.warnings, "; ")), false},
                     {record.record_id, false}},
                    record.record_id});
  }
  if (rows.empty()) return;
  add_table(html, "Calibration",
            {"scale file", "SHA-256", "examples", "tokens", "longest", "warnings", "record"}, rows);
}

}  // namespace

void add_control_section(Markup& html, const Verdict& verdict) {
  if (verdict.control.empty()) return;
  open_section(html, "control", "BF16 against itself");
  html.leaf("p", fmt::format(
                     "The control ran twice with another batch plan: {} of its answers flip (p "
                     "{}){}. A bucket in which it does not beat guessing cannot show a loss and "
                     "is dropped.",
                     percent(verdict.aa_flips, 2), significant(verdict.aa_p, 2),
                     verdict.aa_kld ? fmt::format(", KLD {} nats", significant(*verdict.aa_kld, 2))
                                    : ""));
  std::vector<HtmlRow> rows;
  for (const ControlBucket& row : verdict.control) {
    rows.push_back({{{row.bucket, false},
                     {grouped(row.n)},
                     {grouped(row.documents)},
                     {grouped(row.flips)},
                     {fmt::format("{} ± {}", fixed(100 * row.mean, 1), fixed(100 * row.se, 1))},
                     {fixed(100 * row.chance, 1)},
                     {row.is_kept ? "kept" : "dropped", false}},
                    row.id});
  }
  add_table(html, "Block AA; score in points with its standard error",
            {"bucket", "n", "documents", "flips", "score", "guessing", "bucket is"}, rows);
  html.close();
}

void add_comparison_section(Markup& html, const Verdict& verdict) {
  if (verdict.tables.empty()) return;
  open_section(html, "comparisons", "Comparisons on the same questions");
  size_t number = 0;
  for (const ArmTable& table : verdict.tables) {
    html.leaf("h3", fmt::format("{} against {} on block {}", table.arm, reference_name(table),
                                table.block));
    html.leaf("p", comparison_sentence(table, verdict.options));
    html.open("figure");
    draw(html, difference_chart(table, verdict.options, ++number));
    html.close();
    add_comparison_table(html, table);
  }
  html.close();
}

void add_ablation_section(Markup& html, const Verdict& verdict, bool owns_records) {
  if (verdict.ablation.empty()) return;
  open_section(html, "ablation", "What keeping layers in BF16 repairs");
  IntervalChart chart;
  chart.id = "ablation-chart";
  chart.title = "KLD by number of layers kept in BF16";
  chart.axis = "KLD from BF16 over block E2, nats a token (log scale)";
  chart.is_log = true;
  std::vector<HtmlRow> rows;
  std::vector<std::string> words;
  for (const AblationPoint& point : verdict.ablation) {
    ChartRow& row = chart.rows.emplace_back();
    row.label = point.arm;
    row.value = point.kld;
    row.note = fmt::format("{}, {} of the excess gone", significant(point.kld, 3),
                           percent(point.share_removed, 0));
    rows.push_back({{{point.arm, false},
                     {fmt::to_string(point.bf16_layers)},
                     {fixed(point.kld, 4)},
                     {percent(point.share_removed)},
                     {point.record, false, point.record}},
                    owns_records ? point.record : ""});
    words.push_back(fmt::format("{} layers: {}", point.bf16_layers, significant(point.kld, 3)));
  }
  chart.description = fmt::format("Nats: {}.", fmt::join(words, "; "));
  html.open("figure");
  draw(html, chart);
  html.close();
  add_table(html, "Layers restored in order of score noise, worst first",
            {"arm", "BF16 layers", "KLD, nats", "excess removed", "record"}, rows);
  html.close();
}

void add_system_sections(Markup& html, const Records& records) {
  if (records.capacities.empty() && records.supports.empty() && records.calibrations.empty())
    return;
  open_section(html, "systems", "Capacity, support, calibration");
  add_capacities(html, records);
  add_supports(html, records);
  add_calibrations(html, records);
  html.close();
}

void add_method_section(Markup& html, const Verdict& verdict) {
  open_section(html, "method", "How it was decided");
  std::vector<HtmlRow> rows;
  for (const TraceEntry& entry : verdict.state_trace) {
    rows.push_back(
        {{{entry.state, false}, {entry.block, false}, {entry.arm, false}, {entry.event, false}},
         ""});
  }
  if (!rows.empty()) add_table(html, "States", {"state", "block", "arm", "event"}, rows);
  const DecideOptions& used = verdict.options;
  add_facts(html, {{"margin", margin_words(used)},
                   {"block size", fmt::format("{} documents x {} questions a bucket",
                                              used.documents, used.questions_per_document)},
                   {"looked at", used.looks.size() == 1
                                     ? "once, with all of them"
                                     : fmt::format("when these shares of them are in: {}",
                                                   fmt::join(used.looks, ", "))},
                   {"least documents", fmt::to_string(used.min_documents)},
                   {"level of a shift", significant(used.alpha_shift, 3) + ", family-wise"},
                   {"A/A flips at most", percent(used.aa_max_flip)},
                   {"capacity gain at least", significant(used.capacity_gain_min, 4) + "x"},
                   {"BF16 layers at most", percent(used.bf16_share_max, 0)},
                   {"target", used.target}});
  html.close();
}

}  // namespace kv
