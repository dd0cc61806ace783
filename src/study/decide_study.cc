#include "study/decide_study.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "decide/evidence.h"
#include "decide/look_plan.h"
#include "decide/thresholds.h"
#include "evaluate/near_duplicates.h"
#include "evaluate/scorers.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "study/capacity.h"
#include "targets/targets.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv {
namespace {

constexpr int64_t kCalibrationDocumentsPerBucket = 6;
constexpr size_t kArmsPerPass = 8;  // caches of so many arms exist at a time

const std::vector<std::string> kBlocks = {"E1", "E2", "E3", "CAL"};

std::string example_record_id(const std::string& block, const std::string& arm,
                              const std::string& example) {
  return fmt::format("{}/{}/{}", block, arm, example);
}

std::string bucket_of(int64_t tokens, const std::vector<int64_t>& buckets) {
  for (const int64_t edge : buckets) {
    if (tokens <= edge) return fmt::format("{}", edge);
  }
  return "";
}

/// The first `count` documents of each bucket, which is a share of every task.
std::vector<Document> first_of_each_bucket(const std::vector<Document>& documents, int64_t count) {
  std::map<std::string, std::set<std::string>> seen;
  std::vector<Document> out;
  for (const Document& document : documents) {
    std::set<std::string>& here = seen[document.bucket];
    if (std::ssize(here) >= count && !here.contains(document.id)) continue;
    here.insert(document.id);
    out.push_back(document);
  }
  return out;
}

/// The documents of a block with the tasks taking turns, so that every look and both replicate
/// halves have a share of each, and each told which look and half it belongs to.
std::vector<Document> dealt_to_looks(std::vector<Document> documents,
                                     const std::vector<double>& looks) {
  // A document that is there several times, once for each prompt of a cluster, has one turn.
  std::map<std::pair<std::string, std::string>, std::map<std::string, int64_t>> turns;
  std::vector<std::pair<int64_t, Document>> order;
  for (Document& document : documents) {
    std::map<std::string, int64_t>& known = turns[{document.bucket, document.task}];
    const int64_t turn = known.try_emplace(document.id, std::ssize(known)).first->second;
    document.half = 1 + turn % 2;
    order.emplace_back(turn, std::move(document));
  }
  std::ranges::stable_sort(order, {}, [](const auto& one) { return one.first; });
  std::map<std::string, std::set<std::string>> all, seen;  // documents of each bucket
  for (const auto& [turn, document] : order) all[document.bucket].insert(document.id);
  std::vector<Document> out;
  for (auto& [turn, document] : order) {
    std::set<std::string>& before = seen[document.bucket];
    before.insert(document.id);
    document.look = look_of(looks, std::ssize(before) - 1, std::ssize(all[document.bucket]));
    out.push_back(std::move(document));
  }
  return out;
}

std::string sha256_of(const std::filesystem::path& path) {
  const MappedFile file(path);
  return sha256_hex({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

std::vector<int64_t> default_buckets(std::span<const Prompt> prompts, bool own_text,
                                     const ModelSpec& model) {
  int64_t longest = 2048, shortest = 512;
  if (!own_text) {
    const auto length = [](const Prompt& p) { return std::ssize(p.tokens); };
    longest = length(*std::ranges::max_element(prompts, {}, length));
    shortest = length(*std::ranges::min_element(prompts, {}, length));
  }
  std::vector<int64_t> out;
  for (int64_t edge = 256; edge <= model.max_positions; edge *= 2) {
    const bool reached = edge >= shortest && edge / 2 < longest;
    if (reached) out.push_back(edge);
    if (edge >= longest) break;
  }
  if (out.empty()) out.push_back(std::min<int64_t>(256, model.max_positions));
  return out;
}

DecideStudy::DecideStudy(std::shared_ptr<const Model> model, const Tokenizer& tokenizer,
                         std::span<const Prompt> prompts, CalibrationSource source,
                         StudyOptions options, std::filesystem::path folder, RecordLog& log,
                         Progress& progress)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      prompts_(prompts.begin(), prompts.end()),
      source_(std::move(source)),
      options_(std::move(options)),
      folder_(std::move(folder)),
      log_(log),
      progress_(progress),
      runner_(model_, options_.plan, model_->spec().eos_ids, options_.max_new_tokens) {
  options_.decide.tasks_from_generators = std::ranges::none_of(prompts_, &Prompt::has_answer);
  check_options(options_.decide);
  deal_prompts();
}

DecideStudy::~DecideStudy() = default;

Verdict DecideStudy::run() {
  choose_tasks();
  while (true) {
    const Evidence evidence{log_.records(), model_->geometry(), {}, block_sizes()};
    Step step = next_step(options_.decide, evidence);
    if (Verdict* verdict = std::get_if<Verdict>(&step)) return std::move(*verdict);
    const Ask& ask = std::get<Ask>(step);
    const size_t before = log_.size();
    answer_ask(ask);
    if (log_.size() == before) {  // asked again it would be answered again
      throw Error(fmt::format("decide: {}: nothing new to measure for {} on block {}", ask.state,
                              fmt::join(ask.arms, ", "), ask.block));
    }
    record_facts(runner_.facts(), log_);
  }
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

// ---- documents ----

std::vector<Document> DecideStudy::generate_block(const std::string& block, int64_t documents,
                                                  int64_t questions) const {
  std::vector<Document> out;
  const auto tasks = static_cast<int64_t>(tasks_.size());
  for (int64_t t = 0; t < tasks; ++t) {
    GeneratorOptions generator;
    generator.task = tasks_[static_cast<size_t>(t)];
    generator.form = options_.form;
    generator.buckets = options_.buckets;
    generator.documents = documents / tasks + (t < documents % tasks ? 1 : 0);
    generator.questions_per_document = questions;
    generator.master_seed = options_.seed;
    generator.block = block;
    if (generator.documents == 0) continue;
    std::vector<Document> made = generate(tokenizer_, generator);
    out.insert(out.end(), std::make_move_iterator(made.begin()),
               std::make_move_iterator(made.end()));
  }
  for (Document& document : out) {
    // Whole answers count: shares of a span would need another test than the one for pairs of right
    // and wrong.
    for (Question& question : document.questions) question.check = Check::kExact;
  }
  return out;
}

void DecideStudy::deal_prompts() {
  if (const int64_t joined = assign_clusters(prompts_); joined > 0) {
    notices_.push_back(
        fmt::format("{} prompts are near-duplicates of others ({:.0f} % of their runs of 8 tokens) "
                    "and count as "
                    "one document with them",
                    joined, 100 * kNearDuplicate));
  }
  std::map<std::string, std::vector<const Prompt*>> answered;
  std::vector<const Prompt*> unanswered;
  int64_t too_long = 0, longest = 0;
  for (const Prompt& prompt : prompts_) {
    const std::string bucket = bucket_of(std::ssize(prompt.tokens), options_.buckets);
    if (!prompt.has_answer()) {
      unanswered.push_back(&prompt);
    } else if (!bucket.empty()) {
      answered[bucket].push_back(&prompt);
    } else {
      ++too_long;
      longest = std::max(longest, std::ssize(prompt.tokens));
    }
  }
  if (too_long > 0) {
    notices_.push_back(fmt::format(
        "{} prompts with answers are longer than the last bucket of {} tokens and were left out "
        "(the longest has {})",
        too_long, options_.buckets.back(), longest));
  }
  for (const auto& [bucket, prompts] : answered) {
    std::set<std::string> clusters;
    for (const Prompt* prompt : prompts) clusters.insert(prompt->cluster);
    const int64_t least = 2 * std::ssize(kBlocks);
    if (std::ssize(clusters) < least) {
      throw ValueError(fmt::format(
          "{}: bucket {}: expected prompts with answers from at least {} documents, 2 for each of "
          "the blocks {}, found {} from {}",
          source_.prompts, bucket, least, fmt::join(kBlocks, ", "), prompts.size(),
          clusters.size()));
    }
    deal(prompts, kBlocks);
  }
  deal(unanswered, {"E2", "CAL"});
}

/// In an order that hangs on names alone, so that no order of the file favours a block. A cluster
/// goes into one block as a whole, the one with the fewest of these prompts so far.
void DecideStudy::deal(std::vector<const Prompt*> prompts, const std::vector<std::string>& blocks) {
  std::ranges::sort(prompts, {}, [](const Prompt* p) {
    return std::tuple(mix(fnv1a64(p->cluster)), p->cluster, p->id);
  });
  std::vector<int64_t> counts(blocks.size());
  for (const Prompt* prompt : prompts) {
    std::string& block = block_of_cluster_[prompt->cluster];
    if (block.empty()) {
      block = blocks[static_cast<size_t>(std::ranges::min_element(counts) - counts.begin())];
    }
    const auto place = std::ranges::find(blocks, block);
    if (place != blocks.end()) ++counts[static_cast<size_t>(place - blocks.begin())];
  }
}

std::vector<Document> DecideStudy::user_documents(const std::string& block) const {
  std::vector<Document> out;
  for (const Prompt& prompt : prompts_) {
    const std::string bucket = bucket_of(std::ssize(prompt.tokens), options_.buckets);
    if (!prompt.has_answer() || bucket.empty() || block_of_cluster_.at(prompt.cluster) != block)
      continue;
    Document document;
    document.id = prompt.cluster;
    document.task = "user";
    document.bucket = bucket;
    document.target_tokens = std::ssize(prompt.tokens);
    document.context.assign(prompt.tokens.begin(), prompt.tokens.end() - 1);
    Question question;
    question.id = prompt.id;
    question.tokens = {prompt.tokens.back()};
    question.accepted_answers = prompt.accepted_answers;
    question.check = prompt.check;
    document.questions.push_back(std::move(question));
    out.push_back(std::move(document));
  }
  return out;
}

const std::vector<Document>& DecideStudy::documents(const std::string& block) {
  const auto found = documents_.find(block);
  if (found != documents_.end()) return found->second;
  // The A/A block is a part of E1 before its candidate has run: the control's answers serve both.
  std::vector<Document> made =
      block == "AA" ? first_of_each_bucket(documents("E1"), options_.decide.aa_documents)
                    : dealt_to_looks(options_.decide.tasks_from_generators
                                         ? generate_block(block, options_.decide.documents,
                                                          options_.decide.questions_per_document)
                                         : user_documents(block),
                                     options_.decide.looks);
  return documents_[block] = std::move(made);
}

std::vector<Prompt> DecideStudy::contexts(const std::string& block, int64_t per_bucket) {
  std::vector<Prompt> out;
  for (const int64_t bucket : options_.buckets) {
    std::vector<const Document*> here;
    for (const Document& document : documents(block)) {
      if (document.bucket == fmt::format("{}", bucket)) here.push_back(&document);
    }
    const int64_t count = std::min(per_bucket, std::ssize(here));
    // Spread over the block, so that every task has its share.
    for (int64_t i = 0; i < count; ++i) {
      const Document& document = *here[static_cast<size_t>(i * std::ssize(here) / count)];
      out.push_back({document.id, "", document.context, {}, Check::kContains});
    }
  }
  int64_t room = per_bucket * std::ssize(options_.buckets);
  for (const Prompt& prompt : prompts_) {
    if (prompt.has_answer() || block_of_cluster_.at(prompt.cluster) != block) continue;
    if (room-- <= 0) continue;
    out.push_back(prompt);
  }
  return out;
}

std::vector<BlockSize> DecideStudy::block_sizes() {
  const DecideOptions& plan = options_.decide;
  std::vector<BlockSize> out;
  for (const std::string block : {"AA", "E1", "E2", "E3"}) {
    const int64_t num_looks = block == "AA" ? 1 : std::ssize(plan.looks);
    for (int64_t look = 1; look <= num_looks; ++look) {
      std::map<std::string, BlockSize> sizes;
      if (plan.tasks_from_generators) {  // without making the documents of blocks that may not run
        const int64_t count = block == "AA" ? std::min(plan.documents, plan.aa_documents)
                                            : documents_at(plan.looks, look, plan.documents);
        for (const int64_t bucket : options_.buckets) {
          BlockSize& size = sizes[fmt::format("{}", bucket)];
          size.documents = count;
          size.examples = count * plan.questions_per_document;
        }
      } else {
        std::map<std::string, std::set<std::string>> clusters;
        for (const Document& d : documents(block)) {
          if (block != "AA" && d.look > look) continue;
          BlockSize& size = sizes[d.bucket];
          size.examples += std::ssize(d.questions);
          clusters[d.bucket].insert(d.id);
          size.documents = std::ssize(clusters[d.bucket]);
        }
      }
      for (auto& [bucket, size] : sizes) {
        size.block = block;
        size.bucket = bucket;
        size.look = look;
        out.push_back(size);
      }
    }
  }
  return out;
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
  for (Document& document : documents) {
    for (Question& question : document.questions) question.check = Check::kExact;
    const RunnerArm control = runner_arm(std::string(kControlArm));
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
  tasks_ = options_.tasks;
  if (!options_.decide.tasks_from_generators || !tasks_.empty()) return;
  std::vector<std::pair<double, std::string>> scores;
  for (const std::string& task : generator_tasks()) {
    progress_.update("pilot: what the model can answer", std::ssize(scores),
                     std::ssize(generator_tasks()), "tasks");
    progress_.check();
    if (const auto score = pilot_score(task)) scores.emplace_back(*score, task);
  }
  if (scores.empty()) {
    throw UnsupportedError(fmt::format("decide: no task is left: {}", fmt::join(notices_, "; ")));
  }
  const auto& [best_score, best_task] = *std::ranges::max_element(scores);
  for (const auto& [score, task] : scores) {
    if (score >= thresholds::kPilotFloor || task == best_task) tasks_.push_back(task);
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
  check_calibration(*calibration_, source_.model_sha256, model_->spec().num_layers,
                    model_->spec().num_kv_heads, file.string());
  return *calibration_;
}

RunnerArm DecideStudy::runner_arm(const std::string& name) {
  RunnerArm out;
  out.name = name;
  if (name == kControlRepeat) {
    out.repeat = true;
    return out;
  }
  out.arm.spec = ArmSpec::parse(name);
  if (out.arm.spec.needs_scales())
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
  Score score;
  if (question.answer_tokens.empty()) {
    score = score_text(question.check, tokenizer_.decode(answer.produced, true),
                       question.accepted_answers);
    score.valid = score.valid && answer.ended && !is_runaway(answer.produced);
  } else {
    score = score_tokens(question.check, question.answer_tokens, answer.produced);
  }
  out.score = answer.finite ? score.value : 0;
  out.finite = answer.finite;
  out.valid = score.valid && answer.finite;
  return out;
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

void DecideStudy::score_document(const Document& document, const std::string& block,
                                 std::span<const RunnerArm> arms) {
  if (arms.empty()) return;
  const auto answers = runner_.answer(document, arms);
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

void DecideStudy::record_quality(const Ask& ask) {
  std::vector<std::string> names = ask.arms;
  if (ask.kind == AskKind::kControlTwice)
    names = {std::string(kControlArm), std::string(kControlRepeat)};
  std::vector<RunnerArm> arms;
  for (const std::string& arm_name : names) arms.push_back(runner_arm(arm_name));
  std::vector<const Document*> todo;
  int64_t total = 0, done = 0;
  for (const Document& document : documents(ask.block)) {
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
    record.supported = found.supported;
    record.reason = std::string(found.note);
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
  const std::vector<Prompt> material = contexts("CAL", kCalibrationDocumentsPerBucket);
  CalibrationSource source = source_;
  if (options_.decide.tasks_from_generators) {
    source.prompts += fmt::format(" and generated documents (block CAL, seed {})", options_.seed);
  }
  calibration_ = calibrate(model_, material, source, options_.plan, progress_);
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
  measure_ranges(model_, contexts("E2", thresholds::kContextsPerBucket), calibration(), layouts,
                 range, options_.plan, log_, progress_);
}

void DecideStudy::record_kld(const Ask& ask) {
  const std::vector<Prompt> material = contexts("E2", thresholds::kContextsPerBucket);
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
