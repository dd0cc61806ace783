#include "report/eval_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "decide/verdict_json.h"
#include "evaluate/logit_metrics.h"
#include "report/arm_table.h"
#include "report/divergence_section.h"
#include "report/json_values.h"
#include "report/numbers.h"
#include "report/run_facts_text.h"
#include "report/text_table.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::vector<LogitRecord> records_of(std::span<const LogitRecord> logits, const std::string& arm) {
  std::vector<LogitRecord> out;
  std::copy_if(logits.begin(), logits.end(), std::back_inserter(out),
               [&](const LogitRecord& record) { return record.arm == arm; });
  return out;
}

/// Values of a field in the order in which they first appear.
std::vector<std::string> distinct(std::span<const LogitRecord> logits,
                                  std::string LogitRecord::*field) {
  std::vector<std::string> out;
  for (const LogitRecord& record : logits) {
    if (std::find(out.begin(), out.end(), record.*field) == out.end()) out.push_back(record.*field);
  }
  return out;
}

LogitSummary bucket_summary(std::span<const LogitRecord> records, const std::string& bucket) {
  std::vector<LogitRecord> selected;
  std::copy_if(records.begin(), records.end(), std::back_inserter(selected),
               [&](const LogitRecord& record) { return record.bucket == bucket; });
  return summarize(selected);
}

double candidate_nll(const LogitSummary& summary) {
  return summary.nll_ctrl + summary.ln_ppl_ratio.mean;
}

void add_errors(OrderedJson& json, const LogitSummary& summary) {
  json["kld_se_naive"] = json_number(summary.kld.se_naive);
  json["delta_nll"] = json_number(summary.ln_ppl_ratio.mean);
  json["delta_nll_se"] = json_number(summary.ln_ppl_ratio.se_cluster);
  json["kld_max"] = json_number(summary.kld_max);
  json["documents"] = summary.documents;
  json["non_finite"] = summary.non_finite;
}

OrderedJson bucket_json(const std::string& bucket, const LogitSummary& summary) {
  OrderedJson json = {{"bucket", bucket},
                      {"tokens", summary.n},
                      {"nll", json_number(candidate_nll(summary))},
                      {"kld", json_number(summary.kld.mean)},
                      {"kld_se", json_number(summary.kld.se_cluster)},
                      {"same_top", json_number(summary.same_top)}};
  add_errors(json, summary);
  return json;
}

OrderedJson arm_json(const ArmRow& row, std::span<const LogitRecord> logits) {
  const ArmRecord& record = *row.record;
  const std::vector<LogitRecord> own = records_of(logits, record.arm);
  OrderedJson json = {{"arm", record.arm},
                      {"tokens", record.tokens},
                      {"nll", json_number(record.nll)},
                      {"kld", json_number(record.kld)},
                      {"kld_se", json_number(record.kld_se)},
                      {"same_top", json_number(record.same_top)},
                      {"capacity_gain", row.gain ? json_number(*row.gain) : OrderedJson(nullptr)},
                      {"record", record.record_id}};
  if (!own.empty()) add_errors(json, summarize(own));
  OrderedJson buckets = OrderedJson::array();
  for (const std::string& bucket : distinct(own, &LogitRecord::bucket)) {
    buckets.push_back(bucket_json(bucket, bucket_summary(own, bucket)));
  }
  json["buckets"] = std::move(buckets);
  return json;
}

/// KLD summed over the tokens of one generation, mean over the prompts, to the end of each bucket:
/// what the whole continuation lost of the control's probability.
std::vector<double> cumulative_kld(std::span<const LogitRecord> own,
                                   const std::vector<std::string>& buckets) {
  std::vector<double> out;
  const auto documents = static_cast<double>(distinct(own, &LogitRecord::document).size());
  double sum = 0;
  for (const std::string& bucket : buckets) {
    for (const LogitRecord& record : own) {
      if (record.bucket == bucket) sum += record.kld;
    }
    out.push_back(sum / std::max(documents, 1.0));
  }
  return out;
}

OrderedJson forced_json(std::span<const LogitRecord> logits) {
  OrderedJson out = OrderedJson::array();
  const std::vector<std::string> buckets = distinct(logits, &LogitRecord::bucket);
  for (const std::string& arm : distinct(logits, &LogitRecord::arm)) {
    const std::vector<LogitRecord> own = records_of(logits, arm);
    const std::vector<double> sums = cumulative_kld(own, buckets);
    OrderedJson json = {{"arm", arm}, {"buckets", OrderedJson::array()}};
    for (size_t i = 0; i < buckets.size(); ++i) {
      json["buckets"].push_back(bucket_json(buckets[i], bucket_summary(own, buckets[i])));
      json["buckets"].back()["kld_cumulative"] = json_number(sums[i]);
    }
    out.push_back(std::move(json));
  }
  return out;
}

/// One row an arm; with `has_sums` each bucket also says what was summed up to its end.
std::string kld_table(std::span<const LogitRecord> logits, const std::vector<ArmRow>& arms,
                      const TextStyle& style, bool has_sums = false) {
  const std::vector<std::string> buckets = distinct(logits, &LogitRecord::bucket);
  std::vector<TextColumn> columns = {{"arm", false, true}};
  for (const std::string& bucket : buckets) columns.push_back({bucket, true, true});
  std::vector<std::vector<TextCell>> rows;
  for (const ArmRow& arm : arms) {
    if (arm.is_control()) continue;
    std::vector<TextCell> cells = {{arm.record->arm}};
    const std::vector<LogitRecord> own = records_of(logits, arm.record->arm);
    const std::vector<double> sums = cumulative_kld(own, buckets);
    for (size_t i = 0; i < buckets.size(); ++i) {
      const LogitSummary summary = bucket_summary(own, buckets[i]);
      const std::string n =
          has_sums ? "; " + significant(sums[i], 3) : fmt::format(" (n {})", grouped(summary.n));
      cells.push_back(
          {summary.n == 0
               ? "-"
               : mean_with_error(summary.kld.mean, summary.kld.se_cluster, 4, style.unicode) + n});
    }
    rows.push_back(std::move(cells));
  }
  return text_table(columns, rows, style);
}

}  // namespace

std::vector<ArmRecord> arms_of(std::span<const LogitRecord> logits) {
  std::vector<ArmRecord> out;
  for (const std::string& arm : distinct(logits, &LogitRecord::arm)) {
    const LogitSummary summary = summarize(records_of(logits, arm));
    out.push_back({"arm/" + arm, arm, summary.n, candidate_nll(summary), summary.kld.mean,
                   summary.kld.se_cluster, summary.same_top, summary.non_finite});
  }
  return out;
}

OrderedJson arms_json(std::span<const ArmRecord> arms, std::span<const LogitRecord> logits,
                      std::span<const CapacityRecord> capacities) {
  OrderedJson out = OrderedJson::array();
  for (const ArmRow& row : make_arm_rows(arms, capacities)) out.push_back(arm_json(row, logits));
  return out;
}

std::string eval_json(const EvalReport& report) {
  const std::vector<ArmRecord> arms = report.arms.empty() ? arms_of(report.logits) : report.arms;
  OrderedJson out = {{"model", json_of(report.model)},
                     {"prompts", json_of(report.prompts)},
                     {"arms", arms_json(arms, report.logits, report.capacities)}};
  if (!report.forced.empty()) out["forced"] = forced_json(report.forced);
  if (!report.divergence.empty()) out["divergence"] = divergence_json(report.divergence);
  out["notices"] = report.notices;
  out["alarms"] = report.alarms;
  out["run"] = json_of(report.run);
  return json_text(out);
}

std::string eval_text(const EvalReport& report, const TextStyle& style) {
  check_style(style);
  const std::vector<ArmRecord> records = report.arms.empty() ? arms_of(report.logits) : report.arms;
  const std::vector<ArmRow> arms = make_arm_rows(records, report.capacities);
  std::string out = model_text(report.model, report.prompts, style) + '\n';
  out += arm_text(arms, style);
  if (!report.logits.empty()) {
    out += '\n';
    out += paragraph("KLD from BF16 by tokens attended to, nats a token, with its standard error.",
                     style);
    out += kld_table(report.logits, arms, style);
  }
  if (!report.forced.empty()) {
    out += '\n';
    out += paragraph(
        fmt::format("KLD by tokens that BF16 generated after {} prompts and all arms were fed: "
                    "nats a token; summed from the first one on.",
                    distinct(report.forced, &LogitRecord::document).size()),
        style);
    out += kld_table(report.forced, arms, style, true);
  }
  if (!report.divergence.empty()) out += '\n' + divergence_text(report.divergence, style);
  for (const std::string& notice : report.notices) out += '\n' + paragraph(notice, style);
  for (const std::string& alarm : report.alarms) out += '\n' + paragraph(alarm, style);
  const std::string facts = run_text(report.run, style);
  if (!facts.empty()) out += '\n' + facts;
  out.pop_back();
  return out;
}

}  // namespace kv
