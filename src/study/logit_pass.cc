#include "study/logit_pass.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "evaluate/logit_metrics.h"
#include "study/calibration_pass.h"
#include "text/sha256.h"

namespace kv {
namespace {

std::string record_id(const std::string& block, const std::string& arm, const std::string& prompt,
                      const std::string& bucket) {
  return fmt::format("{}/logits/{}/{}/{}", block, arm, prompt, bucket);
}

/// The bucket of the token with `before` tokens before it; empty: it is not scored.
std::string bucket_of(const PositionBuckets& buckets, const LogitPassOptions& options,
                      int64_t before) {
  if (options.given == 0) return buckets.label(before);
  return before < options.given ? "" : "+" + buckets.label(before - options.given + 1);
}

/// The records of one prompt under all arms while its logits come in.
class PromptRecords {
 public:
  PromptRecords(const Prompt& prompt, const std::vector<std::string>& arms,
                const LogitPassOptions& options)
      : prompt_(prompt), arms_(arms), options_(options), buckets_(options.bucket_edges) {}

  /// Rows of one call: for every token the control's first, then the arms'.
  void add(std::span<const LogitRow> rows) {
    for (size_t i = 0; i < rows.size(); i += arms_.size()) {
      const int64_t token = rows[i].token;
      if (token + 1 >= std::ssize(prompt_.tokens)) continue;
      const std::string bucket = bucket_of(buckets_, options_, token + 1);
      const int32_t next = prompt_.tokens[static_cast<size_t>(token) + 1];
      control_.prepare(rows[i].logits.data(), std::ssize(rows[i].logits));
      for (size_t arm = 0; arm < arms_.size(); ++arm) {
        add_row(record(arm, bucket), control_.compare(rows[i + arm].logits.data(), next));
      }
    }
  }

  void append_to(RecordLog& log) const {
    for (const auto& [bucket, of_arms] : records_) {
      for (const LogitRecord& record : of_arms) {
        if (!log.has(record.record_id)) log.append(record);
      }
    }
  }

 private:
  LogitRecord& record(size_t arm, const std::string& bucket) {
    if (records_.empty() || records_.back().first != bucket) {
      records_.emplace_back(bucket, std::vector<LogitRecord>(arms_.size()));
    }
    LogitRecord& out = records_.back().second[arm];
    if (out.record_id.empty()) {
      out.record_id = record_id(options_.block, arms_[arm], prompt_.id, bucket);
      out.block = options_.block;
      out.arm = arms_[arm];
      out.document = prompt_.id;
      out.bucket = bucket;
    }
    return out;
  }

  const Prompt& prompt_;
  const std::vector<std::string>& arms_;
  const LogitPassOptions& options_;
  PositionBuckets buckets_;
  ControlRow control_;
  // Of each bucket, by arm. Positions come in order, so that the last bucket is the one at work.
  std::vector<std::pair<std::string, std::vector<LogitRecord>>> records_;
};

void append_amax(const AmaxObserver& observer, const std::string& block, const Prompt& prompt,
                 RecordLog& log) {
  const auto bucket = fmt::format("{}", length_bin(std::ssize(prompt.tokens)));
  const AmaxRecord record = amax_record(observer, block, prompt.id, "", bucket, prompt.language);
  if (!log.has(record.record_id)) log.append(record);
}

std::vector<std::string> names_of(std::span<const ArmToRun> arms) {
  std::vector<std::string> names = {"bf16"};
  for (const ArmToRun& arm : arms) names.push_back(arm.spec.text());
  return names;
}

/// Whether every bucket that the prompt's positions reach has its record under every arm.
bool is_done(const RecordLog& log, const Prompt& prompt, const std::vector<std::string>& arms,
             const LogitPassOptions& options) {
  const PositionBuckets buckets(options.bucket_edges);
  for (const std::string& arm : arms) {
    for (int64_t t = 1; t < std::ssize(prompt.tokens); ++t) {
      const std::string bucket = bucket_of(buckets, options, t);
      const bool is_last =
          t + 1 == std::ssize(prompt.tokens) || bucket_of(buckets, options, t + 1) != bucket;
      if (bucket.empty() || !is_last) continue;
      if (!log.has(record_id(options.block, arm, prompt.id, bucket))) return false;
    }
  }
  return true;
}

}  // namespace

void record_facts(std::span<const ArmFacts> facts, RecordLog& log) {
  for (const ArmFacts& arm : facts) {
    FactsRecord record;
    record.arm = arm.arm;
    record.machine = log.machine();
    std::set<std::string> kernels = arm.kernels.attend;
    kernels.insert(arm.kernels.store_kv.begin(), arm.kernels.store_kv.end());
    kernels.insert(arm.kernels.matmul.begin(), arm.kernels.matmul.end());
    if (kernels.empty()) continue;  // did not run
    record.kernels.assign(kernels.begin(), kernels.end());
    record.scale_source = arm.scale_source;
    record.allocated_bytes = arm.allocated_bytes;
    record.planned_bytes = arm.planned_bytes;
    const std::string content =
        fmt::format("{} {} {} {} {}", log.machine(), fmt::join(kernels, " "), arm.scale_source,
                    arm.allocated_bytes, arm.planned_bytes);
    record.record_id = fmt::format("facts/{}/{}", arm.arm, sha256_hex(content).substr(0, 8));
    if (!log.has(record.record_id)) log.append(record);
  }
}

bool has_logits(const RecordLog& log, const Prompt& prompt, std::span<const ArmToRun> arms,
                const LogitPassOptions& options) {
  return is_done(log, prompt, names_of(arms), options);
}

void run_logit_pass(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                    std::span<const ArmToRun> arms, const LogitPassOptions& options, RecordLog& log,
                    Progress& progress) {
  const std::vector<std::string> names = names_of(arms);
  std::vector<const Prompt*> left;
  const int64_t scored_from = std::max<int64_t>(options.given, 1) - 1;
  int64_t longest = 0, total = 0, done = 0;
  for (const Prompt& prompt : prompts) {
    if (is_done(log, prompt, names, options)) continue;
    left.push_back(&prompt);
    longest = std::max(longest, std::ssize(prompt.tokens));
    total += (std::ssize(prompt.tokens) - scored_from) * std::ssize(names);
  }
  if (left.empty()) return;
  Engine engine(model, options.plan);
  engine.add_arm(ArmSpec{}, std::nullopt, longest, 1);
  for (const ArmToRun& arm : arms) engine.add_arm(arm.spec, arm.scales, longest, 1);
  for (const Prompt* prompt : left) {
    progress.check();
    std::vector<Sequence> sequences;
    for (int arm = 0; arm < engine.num_arms(); ++arm) sequences.push_back(engine.start(arm));
    std::vector<Request> requests;
    for (Sequence& sequence : sequences)
      requests.push_back({&sequence, prompt->tokens, scored_from, nullptr});
    AmaxObserver amax(model->spec().num_layers, model->spec().num_kv_heads);
    if (options.with_amax) requests.front().observer = &amax;
    PromptRecords records(*prompt, names, options);
    engine.run(requests, [&](std::span<const LogitRow> rows) {
      records.add(rows);
      done += std::ssize(rows);
      progress.update("logits: " + options.block, done, total, "tokens");
    });
    // Before the logits, by which a prompt counts as done.
    if (options.with_amax) append_amax(amax, options.block, *prompt, log);
    records.append_to(log);
  }
  std::vector<ArmFacts> facts;
  for (int arm = 0; arm < engine.num_arms(); ++arm) facts.push_back(engine.facts(arm));
  record_facts(facts, log);
}

ArmRecord summarize_arm(const RecordLog& log, const std::string& block, const std::string& arm) {
  std::vector<LogitRecord> records;
  for (const LogitRecord& record : log.logits()) {
    if (record.block == block && record.arm == arm) records.push_back(record);
  }
  const LogitSummary summary = summarize(records);
  ArmRecord out;
  out.record_id = fmt::format("{}/arm/{}", block, arm);
  out.arm = arm;
  out.tokens = summary.n;
  out.nll = summary.ln_ppl_ratio.mean + summary.nll_ctrl;
  out.kld = summary.kld.mean;
  out.kld_se = summary.kld.se_cluster;
  out.same_top = summary.same_top;
  out.non_finite = summary.non_finite;
  return out;
}

}  // namespace kv
