#include "study/decide_study.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "calibrate/fingerprint.h"
#include "decide/evidence.h"
#include "decide/thresholds.h"
#include "evaluate/scorers.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "study/capacity.h"
#include "study/control_check.h"
#include "study/generation_records.h"
#include "targets/targets.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv {
namespace {

constexpr size_t kArmsPerPass = 8;  // caches of so many arms exist at a time

std::string sha256_of(const std::filesystem::path& path) {
  const MappedFile file(path);
  return sha256_hex({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

/// Scores come from the prompts' own answers where there are any.
StudyOptions with_source_of_tasks(StudyOptions options, std::span<const Prompt> prompts) {
  options.decide.tasks_from_generators = std::ranges::none_of(prompts, &Prompt::has_answer);
  return options;
}

}  // namespace

std::string DecideStudy::example_record_id(const std::string& block, const std::string& arm,
                                           const std::string& example) {
  return fmt::format("{}/{}/{}", block, arm, example);
}

DecideStudy::DecideStudy(std::shared_ptr<const Model> model, const Tokenizer& tokenizer,
                         std::span<const Prompt> prompts, CalibrationSource source,
                         StudyOptions options, std::filesystem::path folder, RecordLog& log,
                         Progress& progress)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      source_(std::move(source)),
      options_(with_source_of_tasks(std::move(options), prompts)),
      folder_(std::move(folder)),
      log_(log),
      progress_(progress),
      runner_(model_, options_.plan, model_->spec().eos_ids, line_end_ids(tokenizer_),
              options_.max_new_tokens, options_.sampling),
      blocks_(tokenizer_, prompts, source_.prompts, options_),
      notices_(blocks_.notices()) {
  check_options(options_.decide);
  if (options_.sampling.how.is_greedy()) return;
  notices_.push_back(fmt::format(
      "answers are sampled: temperature {}, top-p {}, {} a question with the same random numbers "
      "under every arm; a question's score is their mean",
      options_.sampling.how.temperature, options_.sampling.how.top_p, options_.sampling.samples));
}

Verdict DecideStudy::run() {
  if (served_) {
    served_preflight();
  } else {
    facts_ = {provenance_fact(), control_fact()};
  }
  if (is_worth_asking()) {
    choose_tasks();
    facts_.push_back(disjoint_fact(""));
  }
  while (true) {
    const Evidence evidence{log_.records(), model_->geometry(), facts_, blocks_.sizes()};
    Step step = next_step(options_.decide, evidence);
    if (Verdict* verdict = std::get_if<Verdict>(&step)) return std::move(*verdict);
    const Ask& ask = std::get<Ask>(step);
    if (PreflightFact fact = disjoint_fact(ask.block); !fact.holds) {
      facts_.push_back(std::move(fact));
      continue;  // before anything is measured on it
    }
    const bool asks_questions = ask.kind == AskKind::kQuality || ask.kind == AskKind::kControlTwice;
    if (asks_questions && probe_arms(ask.arms)) continue;
    const size_t before = log_.size();
    answer_ask(ask);
    if (log_.size() == before) {  // asked again it would be answered again
      throw Error(fmt::format("decide: {}: nothing new to measure for {} on block {}", ask.state,
                              fmt::join(ask.arms, ", "), ask.block));
    }
    record_facts(runner_.facts(), log_);
  }
}

/// Without the model's hash no record says what it is about.
PreflightFact DecideStudy::provenance_fact() const {
  return {"PROVENANCE", !source_.model_sha256.empty(), "", "",
          "model_sha256: expected the hash of the model that is judged, found none"};
}

/// A control that is broken itself says nothing about caches. Models of the compact form were not
/// made to write English: what they can is seen in AA.
PreflightFact DecideStudy::control_fact() {
  progress_.check();
  const ControlCheck check = check_control(model_, tokenizer_);
  notices_.push_back("the BF16 control: " + check.text() +
                     ": a look at whether the model works at all, no part of the comparison");
  const bool writes_text = options_.form != Form::kCompact;
  const bool is_broken = writes_text ? check.is_broken() : !std::isfinite(check.perplexity);
  return {"CONTROL_BROKEN", !is_broken, "", "", "the BF16 control is broken: " + check.text()};
}

/// Blocks that an earlier process measured: a run that is taken up again compares a new block with
/// the same ones as a run that was never stopped.
void DecideStudy::make_recorded_blocks() {
  std::set<std::string> recorded;
  for (const ExampleRecord& record : log_.examples()) recorded.insert(record.block);
  for (const AmaxRecord& record : log_.records().amaxes) recorded.insert(record.block);
  for (const char* block : {"E1", "CAL", "E2", "E3"}) {
    if (recorded.contains(block) || (block == std::string("E1") && recorded.contains("AA"))) {
      blocks_.documents(block);
    }
  }
}

/// The user's prompts are checked at once (block ""), a generated block when it is made.
PreflightFact DecideStudy::disjoint_fact(const std::string& block) {
  PreflightFact fact{"NOT_DISJOINT", true, "", "", ""};
  const std::string made = block == "AA" ? "E1" : block;
  if (!checked_blocks_.insert(made).second) return fact;
  if (!made.empty()) {
    if (!options_.decide.tasks_from_generators) return fact;
    make_recorded_blocks();
    blocks_.documents(made);
  }
  progress_.check();
  fact.text = blocks_.shared();
  fact.holds = fact.text.empty();
  return fact;
}

void DecideStudy::answer_ask(const Ask& ask) {
  progress_.check();
  switch (ask.kind) {
    case AskKind::kSupport:
      return record_support(ask);
    case AskKind::kControlTwice:
    case AskKind::kQuality:
      return record_quality(ask);
    case AskKind::kCalibration:
      return record_calibration();
    case AskKind::kRanges:
      return record_ranges(ask);
    case AskKind::kKld:
      return record_kld(ask);
    case AskKind::kCapacity:
      return record_capacity(ask);
  }
}

// ---- tasks ----

std::optional<double> DecideStudy::pilot_score(const std::string& task) {
  double sum = 0;
  int64_t n = 0;
  GeneratorOptions generator;
  generator.task = task;
  generator.form = options_.form;
  generator.buckets = {options_.buckets.front()};
  if (options_.buckets.size() > 1) generator.buckets.push_back(options_.buckets.back());
  // Documents like those of the plan: what they cannot hold the plan could not either.
  const int64_t questions = options_.decide.questions_per_document;
  generator.questions_per_document = questions;
  generator.documents = std::max(thresholds::kPilotDocuments,
                                 (thresholds::kPilotQuestions + questions - 1) / questions);
  generator.master_seed = mix(options_.seed);  // documents that no block has
  generator.block = "AA";
  std::vector<Document> documents;
  try {
    documents = generate(tokenizer_, generator);
  } catch (const UnsupportedError& error) {  // documents this short do not hold its questions
    notices_.push_back(fmt::format("task {}: left out: {}", task, error.what()));
    return std::nullopt;
  }
  judge_whole_answers(documents);
  const RunnerArm control = runner_arm(std::string(kControlArm));
  std::vector<const Document*> todo;
  for (const Document& document : documents) todo.push_back(&document);
  if (served_) score_served(todo, "PILOT", {&control, 1}, "pilot: " + task);
  for (const Document& document : documents) {
    score_document(document, "PILOT", arms_without_answers(document, "PILOT", {&control, 1}));
  }
  for (const ExampleRecord& record : log_.examples()) {
    if (record.block != "PILOT" || record.task != task) continue;
    sum += record.score;
    ++n;
  }
  return sum / static_cast<double>(std::max<int64_t>(n, 1));
}

void DecideStudy::choose_tasks() {
  const bool asks_for_all = options_.tasks == std::vector<std::string>{kAllTasks};
  std::vector<std::string> tasks;
  if (!options_.decide.tasks_from_generators || (!options_.tasks.empty() && !asks_for_all)) {
    blocks_.set_tasks(options_.tasks);
    return;
  }
  const auto& candidates = asks_for_all ? generator_tasks() : default_tasks();
  std::vector<std::pair<double, std::string>> scores;
  for (const std::string& task : candidates) {
    progress_.update("pilot: what the model can answer", std::ssize(scores), std::ssize(candidates),
                     "tasks");
    progress_.check();
    if (const auto score = pilot_score(task)) scores.emplace_back(*score, task);
  }
  if (scores.empty()) {
    throw UnsupportedError(fmt::format("decide: no task is left: {}", fmt::join(notices_, "; ")));
  }
  const auto& [best_score, best_task] = *std::ranges::max_element(scores);
  for (const auto& [score, task] : scores) {
    if (score >= thresholds::kPilotFloor || task == best_task) tasks.push_back(task);
    if (score >= thresholds::kPilotFloor) continue;
    const std::string fate = task != best_task
                                 ? fmt::format(
                                       "left out; the verdict says nothing about such tasks "
                                       "(--tasks {} judges them)",
                                       task)
                                 : "used all the same, as the best there is";
    notices_.push_back(
        fmt::format("task {}: with a BF16 cache the model answers {:.0f} % of the pilot's "
                    "questions, less than {:.0f} %: {}",
                    task, 100 * score, 100 * thresholds::kPilotFloor, fate));
  }
  blocks_.set_tasks(std::move(tasks));
}

// ---- quality ----

const Calibration& DecideStudy::calibration() {
  if (calibration_) return *calibration_;
  const auto file = folder_ / "scales.json";
  if (const auto& recorded = log_.calibrations(); !recorded.empty()) {
    const std::string expected = recorded.back().scale_file_sha256, found = sha256_of(file);
    if (found != expected) {
      throw FormatError(fmt::format(
          "{}: expected the scales that this run calibrated (SHA-256 {}), found others ({})",
          file.string(), expected.substr(0, 16), found.substr(0, 16)));
    }
  }
  calibration_ = read_calibration(file);
  CalibrationSource here = source_;
  if (options_.decide.tasks_from_generators) here.seed = options_.seed;
  const auto differs = check_calibration(*calibration_, here, model_->spec(), file.string());
  notices_.insert(notices_.end(), differs.begin(), differs.end());
  return *calibration_;
}

RunnerArm DecideStudy::runner_arm(const std::string& name, bool with_scales) {
  RunnerArm out;
  out.name = name;
  if (name == kControlRepeat) {
    out.repeat = true;
    return out;
  }
  out.arm.spec = ArmSpec::parse(name);
  if (with_scales && out.arm.spec.needs_scales())
    out.arm.scales = calibration().scales(out.arm.spec.layout == ArmLayout::kFp8Head);
  return out;
}

ExampleRecord DecideStudy::judge(const Document& document, const Question& question,
                                 const Answer& answer, const std::string& block,
                                 const std::string& arm) const {
  ExampleRecord out;
  out.record_id = example_record_id(block, arm, question.id);
  out.block = block;
  out.arm = arm;
  out.example_id = question.id;
  out.document = document.id;
  out.task = document.task;
  out.bucket = document.bucket;
  out.look = block == "AA" ? 1 : document.look;
  out.half = document.half;
  out.prompt_tokens = answer.prompt_tokens;
  out.chance = question.chance;
  out.answer_logprob = answer.logprob;
  out.kernel = answer.kernel;
  for (const Attempt& attempt : answer.attempts) {
    const Score score = score_of(question, attempt);
    out.score += score.value;
    out.valid = out.valid && score.valid;
  }
  out.score /= static_cast<double>(answer.attempts.size());
  out.finite = answer.finite();
  return out;
}

/// One that is not finite is worth nothing.
Score DecideStudy::score_of(const Question& question, const Attempt& attempt) const {
  if (!attempt.finite) return {0, false};
  if (!question.answer_tokens.empty()) {
    return score_tokens(question.check, question.answer_tokens, attempt.produced);
  }
  Score score = score_text(question, tokenizer_.decode(attempt.produced, true));
  score.valid = score.valid && attempt.ended && !is_runaway(attempt.produced);
  return score;
}

std::vector<RunnerArm> DecideStudy::arms_without_answers(const Document& document,
                                                         const std::string& block,
                                                         std::span<const RunnerArm> arms) {
  std::vector<RunnerArm> missing;
  std::vector<ExampleRecord> taken_over;
  for (const RunnerArm& arm : arms) {
    bool all_there = true;
    for (const Question& question : document.questions) {
      if (log_.has(example_record_id(block, arm.name, question.id))) continue;
      // The control's answers on E1 were recorded under AA: the same documents, the same bits.
      const auto same =
          std::ranges::find(log_.examples(), example_record_id("AA", arm.name, question.id),
                            &ExampleRecord::record_id);
      if (block != "E1" || same == log_.examples().end()) {
        all_there = false;
        continue;
      }
      ExampleRecord copy = *same;
      copy.block = block;
      copy.look = document.look;
      copy.record_id = example_record_id(block, arm.name, question.id);
      taken_over.push_back(std::move(copy));
    }
    if (!all_there) missing.push_back(arm);
  }
  log_.append(taken_over);
  return missing;
}

void DecideStudy::record_amax(const Document& document, const std::string& block,
                              const AmaxObserver& observer) {
  if (observer.tokens(0) == 0) return;  // the control has answered before
  const AmaxRecord record =
      amax_record(observer, block == "AA" ? "E1" : block, document.questions.front().id,
                  document.task, document.bucket, document.language);
  if (!log_.has(record.record_id)) log_.append(record);
}

void DecideStudy::score_document(const Document& document, const std::string& block,
                                 std::span<const RunnerArm> arms) {
  if (arms.empty()) return;
  AmaxObserver observer(model_->spec().num_layers, model_->spec().num_kv_heads);
  runner_.observe_control(block == "PILOT" ? nullptr : &observer);
  const auto answers = runner_.answer(document, arms);
  runner_.observe_control(nullptr);
  // Before the answers, by which a document counts as done.
  record_amax(document, block, observer);
  record_count_errors(document, block, arms, answers);
  if (block != "PILOT") {
    log_.append(generation_records(document, block, arms, answers, options_.sampling, log_));
  }
  std::vector<ExampleRecord> records;
  for (size_t arm = 0; arm < arms.size(); ++arm) {
    for (size_t q = 0; q < document.questions.size(); ++q) {
      ExampleRecord record =
          judge(document, document.questions[q], answers[arm][q], block, arms[arm].name);
      if (!log_.has(record.record_id)) records.push_back(std::move(record));
    }
  }
  log_.append(records);
}

void DecideStudy::record_count_errors(const Document& document, const std::string& block,
                                      std::span<const RunnerArm> arms,
                                      const std::vector<std::vector<Answer>>& answers) {
  if (document.task != "count" || block == "PILOT") return;
  for (size_t arm = 0; arm < arms.size(); ++arm) {
    for (size_t q = 0; q < document.questions.size(); ++q) {
      const Question& question = document.questions[q];
      const Attempt& attempt = answers[arm][q].attempts.front();
      // What was judged on its tokens is known up to its first wrong one.
      const GenerationRecord known = generation_of(question, attempt);
      const std::vector<int32_t> ids(known.ids.begin(), known.ids.end());
      const std::string right = question.answer_tokens.empty()
                                    ? question.accepted_answers.front()
                                    : tokenizer_.decode(question.answer_tokens, true);
      const auto error = count_error(tokenizer_.decode(ids, true), right);
      CountErrorRecord record{"count/" + example_record_id(block, arms[arm].name, question.id),
                              block,
                              arms[arm].name,
                              question.id,
                              document.bucket,
                              error.value_or(0)};
      if (error && !log_.has(record.record_id)) log_.append(record);
    }
  }
}

void DecideStudy::record_quality(const Ask& ask) {
  std::vector<std::string> names = ask.arms;
  if (ask.kind == AskKind::kControlTwice)
    names = {std::string(kControlArm), std::string(kControlRepeat)};
  std::vector<RunnerArm> arms;
  // Scales that a server uses are its own.
  for (const std::string& arm_name : names) arms.push_back(runner_arm(arm_name, !served_));
  std::vector<const Document*> todo;
  int64_t total = 0, done = 0;
  for (const Document& document : blocks_.documents(ask.block)) {
    if (!ask.buckets.empty() && !contains(ask.buckets, document.bucket)) continue;
    if (ask.kind == AskKind::kQuality && document.look > ask.look) continue;
    const int64_t missing = std::ssize(arms_without_answers(document, ask.block, arms));
    if (missing == 0) continue;
    todo.push_back(&document);
    total += std::ssize(document.context) * missing;
  }
  // Lengths mixed, so that the rate and the time left are right from the start.
  std::ranges::stable_sort(todo, {},
                           [](const Document* d) { return mix(fnv1a64(d->questions.front().id)); });
  const std::string stage =
      fmt::format("{}: {} on {}{}", ask.state, fmt::join(names, ", "), ask.block,
                  ask.look > 1 ? fmt::format(", look {}", ask.look) : "");
  if (served_) return score_served(todo, ask.block, arms, stage);
  for (const Document* document : todo) {
    progress_.check();
    const std::vector<RunnerArm> missing = arms_without_answers(*document, ask.block, arms);
    score_document(*document, ask.block, missing);
    done += std::ssize(document->context) * std::ssize(missing);
    progress_.update(stage, done, total, "tokens");
  }
}

// ---- everything else ----

void DecideStudy::record_support(const Ask& ask) {
  for (const std::string& arm : ask.arms) {
    SupportRecord record;
    record.layout = std::string(name(ArmSpec::parse(arm).layout));
    record.target = options_.decide.target;
    record.record_id = fmt::format("support/{}/{}", record.layout, record.target);
    const LayoutSupport found = support(record.layout, record.target);
    if (model_->spec().latent) {
      const auto runs = fp8_layouts(model_->geometry());
      record.supported = std::ranges::find(runs, ArmSpec::parse(arm).layout) != runs.end();
      record.reason = record.supported ? "of latents, whichever backend for MLA is picked"
                                       : "the model caches a latent, one vector for all heads";
      if (!log_.has(record.record_id)) log_.append(record);
      continue;
    }
    // What a server of it does is looked at, not looked up.
    record.supported = found.supported || served_;
    record.reason = std::string(served_ ? "judged by what its server does" : found.note);
    if (!log_.has(record.record_id)) log_.append(record);
  }
}

void DecideStudy::record_capacity(const Ask& ask) {
  for (const std::string& arm : ask.arms) {
    const CapacityRecord record =
        capacity_of(ArmSpec::parse(arm), *model_, options_.buckets.back());
    if (!log_.has(record.record_id)) log_.append(record);
  }
}

void DecideStudy::record_calibration() {
  const std::vector<CalibrationExample> material = blocks_.calibration_examples();
  CalibrationSource source = source_;
  if (options_.decide.tasks_from_generators) {
    source.seed = options_.seed;
    source.prompts += fmt::format(" and generated documents (block CAL, seed {})", options_.seed);
  }
  CalibrationOptions how;
  how.estimator = options_.estimator;
  how.values_file = folder_ / "values.bin";
  how.plan = options_.plan;
  const CalibrationPass pass = run_calibration_pass(model_, material, how, log_, progress_);
  calibration_ = calibration_of(*model_, pass, material, options_.estimator, source);
  const auto file = folder_ / "scales.json";
  write_calibration(file, *calibration_);
  CalibrationRecord record;
  record.record_id = "calibration/CAL";
  record.scale_file = file.filename().string();
  record.scale_file_sha256 = sha256_of(file);
  record.examples = calibration_->source.examples;
  record.tokens = calibration_->source.tokens;
  record.max_tokens = calibration_->source.max_tokens;
  record.warnings = calibration_->warnings;
  log_.append(record);
}

void DecideStudy::record_ranges(const Ask& ask) {
  std::vector<ArmLayout> layouts;
  for (const std::string& arm : ask.arms) layouts.push_back(ArmSpec::parse(arm).layout);
  RangeOptions range;
  range.rounding = options_.decide.rounding;
  measure_ranges(model_, blocks_.contexts("E2", thresholds::kContextsPerBucket), calibration(),
                 layouts, range, options_.plan, log_, progress_);
}

void DecideStudy::record_kld(const Ask& ask) {
  const std::vector<Prompt> material = blocks_.contexts("E2", thresholds::kContextsPerBucket);
  const LogitPassOptions pass{"E2", options_.buckets, options_.plan};
  for (size_t begin = 0; begin < ask.arms.size(); begin += kArmsPerPass) {
    std::vector<ArmToRun> arms;
    for (size_t i = begin; i < std::min(begin + kArmsPerPass, ask.arms.size()); ++i) {
      arms.push_back(runner_arm(ask.arms[i]).arm);
    }
    run_logit_pass(model_, material, arms, pass, log_, progress_);
  }
  for (const std::string& arm : ask.arms) {
    const ArmRecord record = summarize_arm(log_, "E2", ArmSpec::parse(arm).text());
    if (!log_.has(record.record_id)) log_.append(record);
  }
}

}  // namespace kv
