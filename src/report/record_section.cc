#include "report/record_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "decide/pairs.h"
#include "evaluate/logit_metrics.h"
#include "report/interval_chart.h"
#include "report/numbers.h"
#include "report/page.h"
#include "text/sha256.h"

namespace kv {
namespace {

constexpr double kTwoSided95 = 1.96;
constexpr size_t kMostChartRows = 24;  // a longer chart is read no better than the table

struct PositionRow {
  std::string block, arm, bucket;
  LogitSummary summary;
};

/// Arms in the order of the records, buckets ascending.
std::vector<PositionRow> position_rows(const std::vector<LogitRecord>& records) {
  std::vector<std::pair<std::string, std::string>> arms;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<LogitRecord>> by_bucket;
  for (const LogitRecord& record : records) {
    const std::pair arm(record.block, record.arm);
    if (std::ranges::find(arms, arm) == arms.end()) arms.push_back(arm);
    by_bucket[{record.block, record.arm, record.bucket}].push_back(record);
  }
  std::vector<PositionRow> out;
  for (const auto& [key, own] : by_bucket) {
    const auto& [block, arm, bucket] = key;
    out.push_back({block, arm, bucket, summarize(own)});
  }
  const auto rank = [&](const PositionRow& row) {
    return std::ranges::find(arms, std::pair(row.block, row.arm)) - arms.begin();
  };
  std::ranges::stable_sort(out, [&](const PositionRow& a, const PositionRow& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return bucket_before(a.bucket, b.bucket);
  });
  return out;
}

std::string kld_words(const LogitSummary& summary) {
  const std::string mean = significant(summary.kld.mean, 3);
  if (!(summary.kld.se_cluster > 0)) return mean;
  return fmt::format("{} ± {}", mean, significant(summary.kld.se_cluster, 2));
}

IntervalChart position_chart(const std::vector<PositionRow>& rows, const Verdict& verdict) {
  IntervalChart chart;
  chart.id = "kld-by-position";
  chart.title = "KLD from BF16 by tokens attended to";
  chart.axis = "KLD, nats a token (log scale), with a 95 % interval over documents";
  chart.is_log = true;
  std::vector<std::string> words;
  for (const PositionRow& row : rows) {
    ChartRow& out = chart.rows.emplace_back();
    out.label = fmt::format("{}, {}", row.arm, row.bucket);
    out.value = row.summary.kld.mean;
    if (row.summary.kld.se_cluster > 0) {
      out.low = out.value - kTwoSided95 * row.summary.kld.se_cluster;
      out.high = out.value + kTwoSided95 * row.summary.kld.se_cluster;
    }
    out.note = fmt::format("{}, n {}", kld_words(row.summary), grouped(row.summary.n));
    words.push_back(fmt::format("{}: {}", out.label, kld_words(row.summary)));
  }
  if (verdict.aa_kld && *verdict.aa_kld > 0) {
    chart.lines.push_back({*verdict.aa_kld, "BF16 against itself", true});
  }
  chart.description = fmt::format("Nats: {}.", fmt::join(words, "; "));
  return chart;
}

HtmlRow position_row(const PositionRow& row) {
  const LogitSummary& s = row.summary;
  // 50 % and 99 %: see kKldQuantiles.
  return {{{row.arm, false},
           {row.block, false},
           {row.bucket},
           {grouped(s.n)},
           {grouped(s.documents)},
           {kld_words(s)},
           {significant(s.kld_quantiles[5], 3)},
           {significant(s.kld_quantiles[9], 3)},
           {percent(s.same_top)},
           {signed_fixed(s.ln_ppl_ratio.mean, 4)},
           {grouped(s.non_finite)}},
          ""};
}

/// Lines of "name value".
FactList configuration_facts(std::string_view text) {
  FactList out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t space = std::min(line.find(' '), line.size());
    if (line.empty()) continue;
    out.emplace_back(line.substr(0, space), line.substr(std::min(space + 1, line.size())));
  }
  return out;
}

int64_t lines_in(std::string_view text) { return std::ranges::count(text, '\n'); }

void add_records(Markup& html, const std::string& records) {
  if (records.empty()) return;
  const std::string what =
      fmt::format("{} records, {}, SHA-256 {}", grouped(lines_in(records)),
                  format_bytes(static_cast<int64_t>(records.size())), sha256_hex(records));
  if (records.size() > kMostEmbeddedBytes) {
    html.leaf("p", fmt::format("The run's records.jsonl ({}) is too large to be part of this page; "
                               "it lies in the run's folder.",
                               what));
    return;
  }
  html.open("p");
  html.leaf("a", "Save records.jsonl",
            {{"class", "button"},
             {"download", "records.jsonl"},
             {"href", "data:application/x-ndjson;base64," + base64(records)}});
  html.close();
  html.leaf("p",
            fmt::format("Part of this page: {}. With run.json beside it, `kvscale recompute` gives "
                        "this verdict again.",
                        what),
            {{"class", "small"}});
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < have ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= have ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

void add_position_section(Markup& html, const VerdictReport& report) {
  const std::vector<PositionRow> rows = position_rows(report.records.logits);
  if (rows.empty()) return;
  open_section(html, "positions", "KLD by position");
  html.leaf("p",
            "How far the next-token distribution moves from BF16's on the same text, by the number "
            "of tokens attended to. It orders the work; task scores decide.",
            {{"class", "small"}});
  if (rows.size() <= kMostChartRows) {
    html.open("figure");
    draw(html, position_chart(rows, report.verdict));
    html.close();
  }
  std::vector<HtmlRow> table;
  for (const PositionRow& row : rows) table.push_back(position_row(row));
  add_table(html,
            "KLD in nats a token with its standard error over documents, its median and 99th "
            "percentile; same top: share of tokens with the same most likely successor",
            {"arm", "block", "up to tokens", "n", "documents", "KLD", "median", "99 %", "same top",
             "NLL to BF16", "not finite"},
            table);
  html.close();
}

void add_provenance_section(Markup& html, const VerdictReport& report) {
  if (report.files.records.empty() && report.files.configuration.empty()) return;
  open_section(html, "provenance", "Provenance and raw records");
  add_facts(html, {{"weights SHA-256", report.model.sha256},
                   {"text SHA-256", report.prompts.sha256},
                   {"kvscale", report.run.version}});
  if (!report.files.configuration.empty()) {
    html.leaf("h3", "Configuration of the run");
    add_facts(html, configuration_facts(report.files.configuration));
  }
  add_records(html, report.files.records);
  html.close();
}

}  // namespace kv
