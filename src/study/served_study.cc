// The parts of DecideStudy that speak with servers.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "decide/machine.h"
#include "decide/thresholds.h"
#include "evaluate/record_json.h"
#include "evaluate/scorers.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "study/control_check.h"
#include "study/decide_study.h"
#include "study/own_text.h"
#include "study/parallel_jobs.h"
#include "study/served_check.h"
#include "study/served_runner.h"
#include "text/sha256.h"

namespace kv {
namespace {

constexpr size_t kProbeTokens = 512;
constexpr int64_t kWrittenTokens = 12, kProbeWritten = 32;
constexpr int64_t kLeastContext = 288;  // the control's check, and what it writes after that

bool rules_out_a_layout(const PreflightFact& fact) {
  return fact.rule == "BACKEND_FALLBACK" || fact.rule == "NUMERIC_FAULT" ||
         fact.rule == "NOT_SERVED";
}

/// One document under one arm: what a connection does in one go.
struct ServedJob {
  const Document* document;
  RunnerArm arm;
  std::string key;
  uint64_t order;
};

}  // namespace

struct DecideStudy::Served {
  ServedArms& arms;
  ServedRunner runner;
  int concurrency;
  std::set<std::string> probed;      // keys
  std::vector<ServedRecord> probes;  // of this process
};

DecideStudy::~DecideStudy() = default;

void DecideStudy::serve(ServedArms& arms, int concurrency) {
  served_ = std::make_shared<Served>(
      Served{arms,
             ServedRunner(tokenizer_, model_->spec().eos_ids, line_end_ids(tokenizer_),
                          options_.max_new_tokens),
             concurrency,
             {},
             {}});
}

/// Whether any candidate is left that questions may be asked about.
bool DecideStudy::is_worth_asking() const {
  std::set<std::string> out;
  for (const PreflightFact& fact : facts_) {
    if (fact.holds) continue;
    if (!rules_out_a_layout(fact)) return false;
    out.insert(fact.layout);
  }
  return std::ranges::any_of(decided_layouts(options_.decide.target),
                             [&](ArmLayout one) { return !out.contains(std::string(name(one))); });
}

// ---- before any question ----

/// The control and the candidates that were named, each looked at once. Calibrated arms that are to
/// be launched wait for their scales.
void DecideStudy::served_preflight() {
  facts_.clear();
  probe(ArmSpec{});
  if (!std::ranges::all_of(facts_, &PreflightFact::holds)) return;
  std::vector<ArmSpec> candidates = served_->arms.candidates();
  // As decide tries them: what scale 1.0 says is known before a calibrated arm is held against it.
  std::ranges::stable_sort(candidates, {}, &ArmSpec::layout);
  for (const ArmLayout layout : decided_layouts(options_.decide.target)) {
    if (std::ranges::find(candidates, layout, &ArmSpec::layout) != candidates.end()) continue;
    facts_.push_back({"NOT_SERVED", false, std::string(name(layout)), "",
                      fmt::format("{}: no server of it was named", name(layout))});
  }
  for (const ArmSpec& candidate : candidates) {
    const bool must_wait =
        served_->arms.is_exclusive() && candidate.needs_scales() && log_.calibrations().empty();
    if (!must_wait) probe(candidate);
  }
}

/// Looks at servers of arms that are about to be asked. True when something did not hold: the
/// decision is to be thought over.
bool DecideStudy::probe_arms(const std::vector<std::string>& arms) {
  if (!served_) return false;
  const size_t before = facts_.size();
  for (const std::string& text : arms) {
    if (text == kControlRepeat) continue;
    const ArmSpec arm = ArmSpec::parse(text);
    if (served_->probed.contains(served_key(arm))) continue;
    const std::string refusal = served_->arms.refusal(arm);
    if (refusal.empty()) {
      probe(arm);
    } else {
      facts_.push_back({"ARM_NOT_SERVED", false, "", "", refusal});
    }
  }
  return std::any_of(facts_.begin() + static_cast<std::ptrdiff_t>(before), facts_.end(),
                     [](const PreflightFact& fact) { return !fact.holds; });
}

void DecideStudy::probe(const ArmSpec& arm) {
  const bool is_control = arm.layout == ArmLayout::kBf16;
  const std::string key = served_key(arm);
  served_->probed.insert(key);
  progress_.update("servers: " + key, 0, 1, "arms");
  std::shared_ptr<ServedArm> server;
  try {
    server = served_->arms.open(arm, [&] { progress_.check(); });
  } catch (const IoError& error) {
    if (is_control || !served_->arms.is_exclusive()) throw;
    // The engine that was started refuses the layout: that is an answer.
    facts_.push_back({"BACKEND_FALLBACK", false, std::string(name(arm.layout)), "",
                      fmt::format("{}: {}", key, error.what())});
    return;
  }
  // What every server is asked first, beside the questions.
  if (const int64_t most = server->facts.max_model_len; most > 0 && most < kLeastContext) {
    facts_.push_back({"LENGTH_MISMATCH", false, "", "",
                      fmt::format("{}: the server takes {} tokens; what it thinks of kvscale's own "
                                  "text needs {}",
                                  key, most, kLeastContext)});
    return;
  }
  ServedRecord record;
  record.arm = key;
  record.server = server->facts.text();
  record.cache_dtype = server->facts.cache_dtype;
  record.block_size = server->facts.block_size;
  record.cache_tokens = server->facts.cache_tokens;
  record.cache_bytes = server->facts.cache_bytes;
  record.expected_tokens = expected_tokens(model_->geometry(), arm, server->facts);
  record.warnings = server->facts.warnings;
  add_prefill(arm, *server, record);
  record.record_id =
      fmt::format("served/{}/{}", key, sha256_hex(record_to_json(record)).substr(0, 8));
  if (!log_.has(record.record_id)) log_.append(record);
  if (is_control) facts_.push_back(served_control_fact(*server, record));
  if (server->replicas.size() > 1) {
    notices_.push_back(
        fmt::format("served: {}: {} replicas answer at {}, told apart by their start "
                    "times",
                    key, server->replicas.size(), server->client.http().url()));
    const auto found = contradictions_of_replicas(model_->geometry(), arm, server->replicas);
    facts_.insert(facts_.end(), found.begin(), found.end());
  }
  check_probe(arm, server->facts, record);
  served_->probes.push_back(record);
  ArmFacts facts;
  facts.arm = key;
  facts.kernels.attend = {record.server};
  facts.scale_source = server->scale_source;
  facts.allocated_bytes = facts.planned_bytes = record.cache_bytes;
  record_facts({&facts, 1}, log_);
}

/// What the server thinks of kvscale's own text.
void DecideStudy::add_prefill(const ArmSpec& arm, ServedArm& server, ServedRecord& record) {
  std::vector<int32_t> tokens = tokenizer_.encode(own_text());
  int64_t most = model_->spec().max_positions;
  if (server.facts.max_model_len > 0) most = std::min(most, server.facts.max_model_len);
  const auto room = static_cast<size_t>(most - kProbeWritten);
  tokens.resize(std::min({tokens.size(), kProbeTokens, room}));
  std::string lane = "no prefill lane";
  try {
    int64_t tops = 0, told = 0;
    for (const ScoredToken& one : server.client.score(tokens)) {
      record.logprobs.push_back(static_cast<float>(one.logprob));
      told += one.is_top.has_value();
      tops += one.is_top.value_or(false);
    }
    record.nll = mean_nll(record.logprobs);
    if (told == std::ssize(record.logprobs)) {
      record.same_top = static_cast<double>(tops) / static_cast<double>(told);
    }
    lane = fmt::format("prefill lane: {:.4f} nats a token over {} of kvscale's own text",
                       record.nll, record.logprobs.size());
  } catch (const UnsupportedError& error) {
    lane += fmt::format(" ({}): judged on the decode lane alone", error.what());
    // What it writes tells caches apart as well, where it says how sure it was.
    tokens.resize(std::min(tokens.size(), kProbeTokens / 2));
    record.logprobs = server.client.generate({tokens, kProbeWritten, {}, true}).logprobs;
    if (!record.logprobs.empty()) {
      lane += fmt::format("; logprobs of {} tokens that it wrote", record.logprobs.size());
    }
  }
  notices_.push_back(fmt::format("served: {}: {}; {}", served_key(arm), record.server, lane));
  for (const std::string& warning : record.warnings) {
    notices_.push_back(fmt::format("served: {}: its log: {}", served_key(arm), warning));
  }
}

void DecideStudy::check_probe(const ArmSpec& arm, const ServerFacts& server,
                              const ServedRecord& record) {
  std::vector<PreflightFact> found = contradictions(model_->geometry(), arm, server);
  const auto more = contradictions(model_->geometry(), arm, record, served_->probes);
  found.insert(found.end(), more.begin(), more.end());
  const ServedRecord* control = served_->probes.empty() ? nullptr : &served_->probes.front();
  for (PreflightFact& fact : found) {
    fact.record = record.record_id;
    if (control != nullptr && record.nll > 0) {
      fact.text += fmt::format(" (prefill lane: {:.4f} nats a token, the control {:.4f})",
                               record.nll, control->nll);
    }
    facts_.push_back(fact);
  }
  if (server.max_model_len > 0 && server.max_model_len <= options_.buckets.back()) {
    facts_.push_back({"LENGTH_MISMATCH", false, "", record.record_id,
                      fmt::format("{}: the server takes {} tokens, the last bucket has {}",
                                  served_key(arm), server.max_model_len, options_.buckets.back())});
  }
}

/// A control that is broken, or of another model, says nothing about caches.
PreflightFact DecideStudy::served_control_fact(ServedArm& server, const ServedRecord& record) {
  const ControlCheck own = check_control(model_, tokenizer_);
  const double own_nll = std::log(own.perplexity);
  std::vector<int32_t> tokens = tokenizer_.encode(own_text());
  const auto count = static_cast<size_t>(own.tokens);
  tokens.resize(count + 1);
  ControlCheck check = own;
  if (record.nll > 0) check.perplexity = std::exp(mean_nll(record.logprobs, count));
  const Generated written = server.client.generate({tokens, kWrittenTokens, {}, false});
  check.continuation = written.text;
  notices_.push_back(
      record.nll > 0
          ? "the served BF16 control: " + check.text()
          : fmt::format(
                "the served 16-bit control gives no logprobs of the prompt: that it has the "
                "model's weights was not tested; after kvscale's own text it writes \"{}\", "
                "the model on kvscale's own engine \"{}\"",
                written.text, own.continuation));
  const double apart = std::abs(std::log(check.perplexity) - own_nll);
  if (!(apart <= thresholds::kServedNllDifference)) {
    return {
        "PROVENANCE", false, "", record.record_id,
        fmt::format("the served control does not have the model's weights: {:.4f} nats a token "
                    "over {} tokens of kvscale's own text, with the weights of the command line "
                    "{:.4f} (at most {:.4g} apart)",
                    std::log(check.perplexity), count, own_nll, thresholds::kServedNllDifference)};
  }
  const bool writes_text = options_.form != Form::kCompact;
  const bool is_broken = writes_text ? check.is_broken() : !std::isfinite(check.perplexity);
  return {"CONTROL_BROKEN", !is_broken, "", record.record_id,
          "the served BF16 control is broken: " + check.text()};
}

// ---- questions ----

void DecideStudy::score_served(const std::vector<const Document*>& documents,
                               const std::string& block, std::span<const RunnerArm> arms,
                               const std::string& stage) {
  std::vector<ServedJob> jobs;
  int64_t total = 0, done = 0;
  for (const Document* document : documents) {
    for (const RunnerArm& arm : arms_without_answers(*document, block, arms)) {
      const std::string place = arm.name + "/" + document->questions.front().id;
      jobs.push_back({document, arm, served_key(arm.arm.spec), mix(fnv1a64(place))});
      total += std::ssize(document->context);
    }
  }
  // In no order that an arm could have a part in: whoever is asked first, with whom, hangs on
  // names.
  std::ranges::sort(jobs, {}, &ServedJob::order);
  if (served_->arms.is_exclusive()) {
    std::ranges::stable_sort(jobs, {},
                             [&](const ServedJob& job) { return mix(fnv1a64(block + job.key)); });
  }
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin;
    while (end < jobs.size() &&
           (!served_->arms.is_exclusive() || jobs[end].key == jobs[begin].key)) {
      const ArmSpec& spec = jobs[end++].arm.arm.spec;
      served_->runner.use(spec, served_->arms.open(spec, [&] { progress_.check(); }));
    }
    std::mutex one_writer;
    Jobs work;
    work.count = end - begin;
    work.workers = static_cast<size_t>(served_->concurrency);
    // An answer is a record as soon as it is there: whatever is killed, what was answered stays.
    work.work = [&](size_t i) {
      const ServedJob& job = jobs[begin + i];
      for (const Question& question : job.document->questions) {
        {
          const std::lock_guard lock(one_writer);
          if (log_.has(example_record_id(block, job.arm.name, question.id))) continue;
        }
        const Answer answer = served_->runner.answer(*job.document, question, job.arm);
        const ExampleRecord record = judge(*job.document, question, answer, block, job.arm.name);
        const std::lock_guard lock(one_writer);
        log_.append(record);
      }
    };
    work.done = [&](size_t i) {
      done += std::ssize(jobs[begin + i].document->context);
      progress_.update(stage, done, total, "tokens");
    };
    work.check = [&] { progress_.check(); };
    work.stop = [&] { served_->arms.stop() = true; };
    run_jobs(work);
    begin = end;
  }
}

}  // namespace kv
