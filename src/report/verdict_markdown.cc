#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "report/divergence_section.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/run_facts_text.h"
#include "report/text_table.h"
#include "report/verdict_report.h"
#include "report/verdict_words.h"

namespace kv {
namespace {

int color_of(const Verdict& verdict) {
  if (is_accepting(verdict.outcome)) return kGreen;
  return is_rejecting(verdict.outcome) ? kRed : kYellow;
}

/// Text inside a Markdown table: a bar would end the cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) out += c == '|' ? '/' : c;
  return out;
}

std::string item(const std::string& text, const TextStyle& style) {
  return paragraph("- " + printable(text), style, 2);
}

std::string heading(const std::string& text, const TextStyle& style) {
  return "\n" + colored("## " + text, kBold, style) + "\n\n";
}

std::string code(const std::string& text) { return "    " + printable(text) + "\n"; }

std::string bar_row(const std::vector<std::string>& cells, const std::vector<int>& widths) {
  std::string out = "|";
  for (size_t c = 0; c < cells.size(); ++c) {
    const std::string space(static_cast<size_t>(std::max(0, widths[c] - columns(cells[c]))), ' ');
    out += c == 0 || c + 1 == cells.size() ? fmt::format(" {}{} |", cells[c], space)
                                           : fmt::format(" {}{} |", space, cells[c]);
  }
  return out + "\n";
}

/// A Markdown table, padded so that it reads as a table without being rendered too.
std::string bar_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns(row[c]));
  }
  std::string out = bar_row(rows.front(), widths) + "|";
  for (size_t c = 0; c < widths.size(); ++c) {
    const bool is_left = c == 0 || c + 1 == widths.size();
    out += std::string(static_cast<size_t>(widths[c] + 1), '-') + (is_left ? "-|" : ":|");
  }
  out += "\n";
  for (size_t r = 1; r < rows.size(); ++r) out += bar_row(rows[r], widths);
  return out;
}

std::string comparison(const ArmTable& table, const DecideOptions& options,
                       const TextStyle& style) {
  std::string out = paragraph(
      fmt::format("{} against {} on block {}: {}", printable(table.arm), printable(table.reference),
                  printable(table.block), printable(comparison_sentence(table, options))),
      style);
  std::vector<std::vector<std::string>> rows = {
      {"bucket", "n (docs)", "BF16", "arm", "difference, points", "lost/won", "margin", "verdict"}};
  if (table.reference != "bf16") rows.front()[2] = "ref.";
  for (const ComparisonRow& row : rows_of(table)) {
    rows.push_back({cell(row.label), fmt::format("{} ({})", grouped(row.n), grouped(row.documents)),
                    fixed(100 * row.mean_ctrl, 1), fixed(100 * row.mean_cand, 1),
                    points_interval(row.diff, row.interval),
                    fmt::format("{}/{}", count_text(row.losses), count_text(row.gains)),
                    significant(100 * row.margin, 3), verdict_words(row.verdict)});
  }
  out += '\n' + bar_table(rows);
  for (const BucketRow& row : table.buckets) {
    if (!row.note.empty()) out += item(row.bucket + ": " + row.note, style);
  }
  return out + '\n';
}

/// A table for every block and arm, whose names would make a row too wide.
std::string divergence(const std::vector<DivergenceRow>& rows, const TextStyle& style) {
  if (rows.empty()) return "";
  std::string out = paragraph(divergence_words(rows), style);
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    const DivergenceRow& first = rows[begin];
    std::vector<std::vector<std::string>> table = {divergence_heads()};
    for (; end < rows.size() && rows[end].arm == first.arm && rows[end].block == first.block;
         ++end) {
      table.push_back(divergence_cells(rows[end]));
    }
    for (auto& row : table) {
      row.erase(row.begin(), row.begin() + 2);
      for (std::string& one : row) one = cell(one);
    }
    out += '\n' +
           paragraph(fmt::format("{} on block {}:", printable(first.arm), printable(first.block)),
                     style) +
           '\n' + bar_table(table);
  }
  return out;
}

std::string reasons(const Verdict& verdict, const TextStyle& style) {
  std::string out;
  for (const Reason& reason : verdict.reasons) {
    out += item(fmt::format("{}: {}{}", reason.rule, reason.text,
                            reason.record.empty() ? "" : fmt::format(" [{}]", reason.record)),
                style);
  }
  return out;
}

std::string launch(const Verdict& verdict, const TextStyle& style) {
  std::string out;
  for (const auto& [engine, lines] : verdict.launch) {
    out += printable(engine) + ":\n\n" + code(lines.flags) + "\n";
    for (const std::string& note : lines.notes) out += item(note, style);
  }
  return out;
}

std::string next(const Verdict& verdict, const TextStyle& style) {
  std::string out;
  for (const NextCommand& command : verdict.next) {
    out += item(command.text, style) + "\n" + code(command.command) + "\n";
  }
  return out;
}

void add_section(std::string& out, const std::string& title, const std::string& body,
                 const TextStyle& style) {
  if (!body.empty()) out += heading(title, style) + body;
}

std::string head(const Verdict& verdict, const TextStyle& style) {
  const std::string line =
      fmt::format("{}: {}{}", name(verdict.outcome), outcome_words(verdict),
                  verdict.sub_reason.empty() ? "" : fmt::format(" ({})", verdict.sub_reason));
  std::string out;
  for (const std::string& part : wrap("# " + printable(line), style.width)) {
    out += colored(part, color_of(verdict), style) + '\n';
  }
  out += '\n';
  if (!verdict.sentence.empty()) out += paragraph(printable(verdict.sentence), style) + '\n';
  std::string facts = "Margin: " + margin_words(verdict.options);
  if (verdict.capacity_gain > 0) {
    facts += fmt::format("; capacity {}x", fixed(verdict.capacity_gain, 3));
  }
  return out + paragraph(printable(facts) + ".", style);
}

}  // namespace

std::string verdict_markdown(const VerdictReport& report, const TextStyle& style) {
  check_style(style);
  const Verdict& verdict = report.verdict;
  std::string out = head(verdict, style) + '\n' + model_text(report.model, report.prompts, style);
  std::string comparisons, notices;
  for (const ArmTable& table : verdict.tables) {
    comparisons += comparison(table, verdict.options, style);
  }
  for (const std::string& notice : verdict.notices) notices += item(notice, style);
  add_section(out, "Comparisons", comparisons, style);
  add_section(out, divergence_heading(verdict.divergence), divergence(verdict.divergence, style),
              style);
  add_section(out, "Reasons", reasons(verdict, style), style);
  add_section(out, "Notices", notices, style);
  add_section(out, "Launch", launch(verdict, style), style);
  add_section(out, "Next", next(verdict, style), style);
  add_section(out, "What ran", run_text(report.run, style), style);
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace kv
