#include "report/verdict_junit.h"

#include <fmt/format.h>

#include <vector>

#include "decide/evidence.h"
#include "decide/quality.h"
#include "report/markup.h"
#include "report/numbers.h"
#include "report/verdict_words.h"
#include "text/utf8.h"

namespace kv {
namespace {

enum class Result { kPassed, kFailure, kError, kSkipped };

struct TestCase {
  std::string name;
  Result result = Result::kPassed;
  std::string rule;     // of a failure or an error
  std::string message;  // also of what passed
};

struct Suite {
  std::string name;
  std::vector<TestCase> cases;
};

int64_t count(const std::vector<Suite>& suites, Result result) {
  int64_t n = 0;
  for (const Suite& suite : suites) {
    for (const TestCase& one : suite.cases) n += one.result == result;
  }
  return n;
}

int64_t total(const std::vector<Suite>& suites) {
  int64_t n = 0;
  for (const Suite& suite : suites) n += static_cast<int64_t>(suite.cases.size());
  return n;
}

/// Markup escapes what would be markup and what is no text; these two XML 1.0 knows no way to
/// write.
std::string xml_text(const std::string& text) {
  std::string out;
  const std::string clean = replace_ill_formed(text);
  for (size_t i = 0; i < clean.size();) {
    const CodePoint c = first_code_point(std::string_view(clean).substr(i));
    const bool is_no_character = c.value == 0xfffe || c.value == 0xffff;
    append_utf8(out, is_no_character ? 0xfffd : c.value);
    i += c.size;
  }
  return out;
}

// ---- gates ----

TestCase verdict_case(const Verdict& verdict) {
  TestCase out{"verdict", Result::kPassed, std::string(name(verdict.outcome)), verdict.sentence};
  if (!verdict.sub_reason.empty()) out.rule += ": " + verdict.sub_reason;
  if (is_rejecting(verdict.outcome)) out.result = Result::kFailure;
  if (verdict.outcome == Outcome::kInconclusive) out.result = Result::kError;
  // Accepted, but its directory is not what the engine must load.
  if (is_accepting(verdict.outcome) && verdict.exit_code != 0) {
    out.result = Result::kError;
    for (const std::string& notice : verdict.notices) out.message += "\n" + notice;
  }
  return out;
}

TestCase control_case(const ControlBucket& row) {
  return {fmt::format("control {}", row.bucket), row.is_kept ? Result::kPassed : Result::kSkipped,
          "INSENSITIVE",
          fmt::format("BF16 scores {} ± {} points, guessing {}, n {} on {} documents, {} flips "
                      "between two runs: {}",
                      fixed(100 * row.mean, 1), fixed(100 * row.se, 1), fixed(100 * row.chance, 1),
                      row.n, row.documents, row.flips,
                      row.is_kept ? "fit to show a loss" : "cannot show a loss, dropped")};
}

TestCase capacity_case(const CapacityRecord& record, const Verdict& verdict) {
  const double least = verdict.options.capacity_gain_min;
  TestCase out{fmt::format("capacity {}", record.arm), Result::kPassed, "NO_SYSTEMS_GAIN: CAPACITY",
               fmt::format("{}x the tokens of BF16, at least {}x wanted", fixed(record.gain(), 3),
                           significant(least, 4))};
  if (record.gain() >= least) return out;
  // An arm that was accepted all the same was accepted for its speed.
  const bool is_at_stake = verdict.layout.empty();
  out.result = is_at_stake ? Result::kFailure : Result::kSkipped;
  return out;
}

Suite gates(const VerdictReport& report) {
  Suite out{"gates", {verdict_case(report.verdict)}};
  for (const ControlBucket& row : report.verdict.control) out.cases.push_back(control_case(row));
  for (const CapacityRecord& record : report.records.capacities) {
    out.cases.push_back(capacity_case(record, report.verdict));
  }
  return out;
}

// ---- comparisons ----

Result result_of(BucketVerdict verdict) {
  if (is_non_inferior(verdict)) return Result::kPassed;
  return verdict == BucketVerdict::kUnresolved ? Result::kError : Result::kFailure;
}

TestCase shift_case(const ArmTable& table) {
  TestCase out{
      "persistent shift", Result::kPassed, "Q_SHIFT",
      fmt::format("{}: overall p {}, trend p {}, sign p {} (Holm), level {}", name(table.shift),
                  significant(table.overall.p_loss_holm, 3), significant(table.p_trend_holm, 3),
                  significant(table.p_sign_holm, 3), significant(table.look.shift_level, 3))};
  if (table.shift != ShiftType::kNone && !table.is_pass) out.result = Result::kFailure;
  return out;
}

Suite comparison(const ArmTable& table) {
  Suite out{table.block + "/" + table.arm, {}};
  for (const BucketRow& row : table.buckets) {
    out.cases.push_back({row.bucket, result_of(row.verdict), std::string(name(row.verdict)),
                         describe(row, row.margin, table.look.alpha)});
  }
  for (const auto& [label, row] :
       {std::pair<std::string, const OverallRow*>{"overall", &table.overall},
        {"validity", &table.validity}}) {
    out.cases.push_back({label, result_of(row->verdict), std::string(name(row->verdict)),
                         describe(*row, label, table.look.alpha)});
  }
  out.cases.push_back(shift_case(table));
  return out;
}

/// Comparisons that the verdict does not rest on stay in the list, without a say.
void skip_unless_decisive(Suite& suite, const ArmTable& table, const Verdict& verdict,
                          bool is_last_of_arm) {
  if (verdict.layout.empty() || (table.arm == verdict.layout && is_last_of_arm)) return;
  for (TestCase& one : suite.cases) {
    one.result = Result::kSkipped;
    one.message = fmt::format("not what was accepted ({}): {}", verdict.layout, one.message);
  }
}

std::vector<Suite> suites_of(const VerdictReport& report) {
  const Verdict& verdict = report.verdict;
  std::vector<Suite> out = {gates(report)};
  for (size_t i = 0; i < verdict.tables.size(); ++i) {
    const ArmTable& table = verdict.tables[i];
    if (table.reference != kControlArm) continue;
    bool is_last = true;
    for (size_t later = i + 1; later < verdict.tables.size(); ++later) {
      is_last &=
          verdict.tables[later].arm != table.arm || verdict.tables[later].reference != kControlArm;
    }
    out.push_back(comparison(table));
    skip_unless_decisive(out.back(), table, verdict, is_last);
  }
  return out;
}

// ---- XML ----

Attributes counts_of(const std::vector<Suite>& suites, const std::string& label) {
  return {{"name", xml_text(label)},
          {"tests", fmt::to_string(total(suites))},
          {"failures", fmt::to_string(count(suites, Result::kFailure))},
          {"errors", fmt::to_string(count(suites, Result::kError))},
          {"skipped", fmt::to_string(count(suites, Result::kSkipped))}};
}

void add_case(Markup& xml, const Suite& suite, const TestCase& one) {
  xml.open("testcase",
           {{"classname", xml_text("kvscale." + suite.name)}, {"name", xml_text(one.name)}});
  const std::string message = xml_text(one.message);
  switch (one.result) {
    case Result::kPassed:
      xml.leaf("system-out", message);
      break;
    case Result::kSkipped:
      xml.empty("skipped", {{"message", message}});
      break;
    case Result::kFailure:
    case Result::kError:
      xml.leaf(one.result == Result::kFailure ? "failure" : "error", message,
               {{"type", xml_text(one.rule)}, {"message", message}});
  }
  xml.close();
}

}  // namespace

std::string verdict_junit(const VerdictReport& report) {
  const std::vector<Suite> suites = suites_of(report);
  Markup xml;
  xml.open("testsuites", counts_of(suites, "kvscale decide " + report.model.name));
  for (const Suite& suite : suites) {
    xml.open("testsuite", counts_of({suite}, suite.name));
    for (const TestCase& one : suite.cases) add_case(xml, suite, one);
    xml.close();
  }
  xml.close();
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + xml.take();
}

}  // namespace kv
