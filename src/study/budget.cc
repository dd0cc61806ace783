#include "study/budget.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "decide/thresholds.h"
#include "evaluate/generators.h"
#include "evaluate/scorers.h"
#include "evaluate/shallow_json.h"
#include "kvscale/error.h"
#include "stats/intervals.h"
#include "stats/sample_size.h"
#include "stats/splitmix64.h"
#include "study/runner.h"
#include "tensor/atomic_file.h"
#include "tensor/mapped_file.h"

namespace kv {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// So many show the flips of a layout with an upper bound that sample sizes can be planned with
// (method 4.11).
constexpr int64_t kPilotQuestionsPerLength = 50;

// Documents and arms of every length: the control's repeat (AA) and the first layout beside the
// control (E1); three arms on E2 and on E3; six contexts of calibration; four contexts of ranges,
// which cost about two arms, and of the ablation, three runs beside a control for each of two
// bases.
constexpr int64_t kArmsOfScreen = 2, kArmsOfTrials = 3 + 3;
constexpr int64_t kContexts = 6 + 2 * thresholds::kContextsPerBucket * (2 + 2 * 4);

double seconds_of(const BudgetPilot& pilot, int64_t bucket) {
  const auto found = std::ranges::find(pilot.lengths, bucket, &BudgetPilot::Length::bucket);
  if (found != pilot.lengths.end()) return found->seconds_per_document;
  throw ValueError(fmt::format("budget: length {}: the pilot did not measure it", bucket));
}

double seconds_for(const BudgetPilot& pilot, const std::vector<int64_t>& buckets,
                   int64_t documents) {
  double out = 0;
  for (const int64_t bucket : buckets) {
    out += seconds_of(pilot, bucket) * static_cast<double>(documents);
  }
  return out;
}

/// Questions a bucket with which the margins are decided if there is no loss, by the upper bound of
/// the pilot's flips.
double questions_needed(const BudgetPilot& pilot, const DecideOptions& decide, size_t buckets) {
  const double flips = wilson_interval(static_cast<double>(pilot.flips),
                                       static_cast<double>(std::max<int64_t>(pilot.questions, 1)),
                                       critical_z(thresholds::kPlanConfidence))
                           .hi;
  const auto needed = [&](double margin, double power) {
    return std::max(non_inferiority_n(flips, margin, 0, decide.alpha_accept, power),
                    zero_flip_n(margin, decide.alpha_accept));
  };
  const double each =
      needed(decide.margin.bucket, power_per_bucket(decide.plan_power, static_cast<int>(buckets)));
  return std::ceil(std::max(
      each, needed(decide.margin.overall, decide.plan_power) / static_cast<double>(buckets)));
}

int64_t questions_of(const DecideOptions& decide) {
  return decide.documents * decide.questions_per_document;
}

/// As many documents as the flips ask for, and no fewer than the bucket's test wants.
DecideOptions with_fewer_documents(const DecideOptions& decide, double questions) {
  DecideOptions out = decide;
  const auto wanted = static_cast<int64_t>(
      std::ceil(questions / static_cast<double>(decide.questions_per_document)));
  out.documents = std::min(decide.documents, std::max(wanted, decide.min_documents));
  out.aa_documents = std::min(decide.aa_documents, out.documents);
  if (out.documents < decide.documents && decide.looks.size() > 1) out.looks = {0.5, 1};
  return out;
}

/// The quick preset's margins and sizes, all else as asked for.
DecideOptions with_quick_margin(const DecideOptions& asked) {
  const DecideOptions quick = DecideOptions::quick();
  DecideOptions out = asked;
  out.preset = quick.preset;
  out.margin = quick.margin;
  out.looks = quick.looks;
  out.documents = quick.documents;
  out.questions_per_document = quick.questions_per_document;
  out.aa_documents = quick.aa_documents;
  out.min_documents = quick.min_documents;
  out.max_questions_per_document = quick.max_questions_per_document;
  out.commands.margin = quick.commands.margin;
  return out;
}

struct Candidate {
  DecideOptions decide;
  std::vector<int64_t> buckets;
};

std::vector<Candidate> candidates(const BudgetPilot& pilot, const DecideOptions& asked,
                                  const std::vector<int64_t>& buckets, bool is_margin_fixed) {
  std::vector<Candidate> out;
  const auto add_both = [&](const DecideOptions& decide, const std::vector<int64_t>& lengths) {
    out.push_back({decide, lengths});
    const double needed = questions_needed(pilot, decide, lengths.size());
    const DecideOptions fewer = with_fewer_documents(decide, needed);
    const bool decides = needed <= static_cast<double>(questions_of(fewer));
    if (decides && fewer.documents < decide.documents) out.push_back({fewer, lengths});
  };
  const bool may_widen = !is_margin_fixed && asked.preset != "quick";
  add_both(asked, buckets);
  if (may_widen) add_both(with_quick_margin(asked), buckets);
  std::vector<int64_t> shorter = buckets;
  while (shorter.size() > 1) {
    shorter.pop_back();
    add_both(may_widen ? with_quick_margin(asked) : asked, shorter);
  }
  return out;
}

std::string minutes_text(double seconds) {
  return fmt::format("{:.{}f} min", seconds / 60, seconds < 600 ? 1 : 0);
}

void explain(const BudgetPilot& pilot, const DecideOptions& asked,
             const std::vector<int64_t>& buckets, double minutes, BudgetPlan& plan) {
  const DecideOptions& used = plan.decide;
  plan.notices.push_back(fmt::format(
      "budget of {:.4g} min: planned {} for all states and one trial, {} if the first layout "
      "passes; without a budget {} (by a pilot of {} questions in {:.0f} s)",
      minutes, minutes_text(plan.seconds), minutes_text(plan.screen_seconds),
      minutes_text(plan.full_seconds), pilot.questions, pilot.seconds));
  if (used.preset != asked.preset) {
    plan.notices.push_back(fmt::format(
        "budget: cut to the margin {}: {:.4g} points a bucket and {:.4g} overall instead of {:.4g} "
        "and {:.4g}",
        used.preset, 100 * used.margin.bucket, 100 * used.margin.overall, 100 * asked.margin.bucket,
        100 * asked.margin.overall));
  }
  if (questions_of(used) < questions_of(asked)) {
    plan.notices.push_back(fmt::format("budget: cut to {} questions a bucket instead of {}",
                                       questions_of(used), questions_of(asked)));
  }
  if (plan.buckets.size() < buckets.size()) {
    const std::vector<int64_t> left(
        buckets.begin() + static_cast<std::ptrdiff_t>(plan.buckets.size()), buckets.end());
    plan.notices.push_back(
        fmt::format("budget: the lengths {} were cut: the verdict says nothing about them",
                    fmt::join(left, ", ")));
  }
  const double needed = questions_needed(pilot, used, plan.buckets.size());
  if (needed > static_cast<double>(questions_of(used))) {
    plan.notices.push_back(fmt::format(
        "budget: {} of the pilot's {} questions flipped, at most so many that {:.0f} questions a "
        "bucket would decide with a power of {:.4g}, and {} are planned: the verdict may stay open",
        pilot.flips, pilot.questions, needed, used.plan_power, questions_of(used)));
  }
}

// ---- the pilot ----

Json pilot_json(const BudgetPilot& pilot) {
  Json lengths = Json::array();
  for (const BudgetPilot::Length& one : pilot.lengths) {
    lengths.push_back({{"bucket", one.bucket}, {"seconds_per_document", one.seconds_per_document}});
  }
  return {{"format", "kvscale-budget"},   {"schema", 1},          {"lengths", lengths},
          {"questions", pilot.questions}, {"flips", pilot.flips}, {"seconds", pilot.seconds}};
}

BudgetPilot read_pilot(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                              mapped.bytes().size());
  try {
    const auto json = parse_shallow<Json>(text);
    if (json.at("format") != "kvscale-budget" || json.at("schema") != 1) {
      throw FormatError("expected format kvscale-budget, schema 1");
    }
    BudgetPilot out;
    for (const Json& one : json.at("lengths")) {
      out.lengths.push_back(
          {one.at("bucket").get<int64_t>(), one.at("seconds_per_document").get<double>()});
    }
    out.questions = json.at("questions").get<int64_t>();
    out.flips = json.at("flips").get<int64_t>();
    out.seconds = json.at("seconds").get<double>();
    if (out.flips < 0 || out.flips > out.questions) throw FormatError("flips: more than questions");
    return out;
  } catch (const std::exception& error) {
    throw FormatError(
        fmt::format("{}: {}; delete it to measure anew", file.string(), error.what()));
  }
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_right(const Question& question, const Answer& answer, const Tokenizer& tokenizer) {
  const std::vector<int32_t>& produced = answer.attempts.front().produced;
  const Score score = question.answer_tokens.empty()
                          ? score_text(question, tokenizer.decode(produced, true))
                          : score_tokens(Check::kExact, question.answer_tokens, produced);
  return answer.finite() && score.value == 1;
}

std::vector<Document> pilot_documents(const Tokenizer& tokenizer, const StudyOptions& options,
                                      int64_t bucket) {
  GeneratorOptions generator;
  const bool is_named = !options.tasks.empty() && options.tasks.front() != kAllTasks;
  generator.task = is_named ? options.tasks.front() : "kv_recall";
  generator.form = options.form;
  generator.buckets = {bucket};
  generator.questions_per_document = options.decide.questions_per_document;
  generator.documents = (kPilotQuestionsPerLength + generator.questions_per_document - 1) /
                        generator.questions_per_document;
  generator.master_seed = mix(options.seed + 1);  // documents that no block and no pilot has
  generator.block = "AA";
  return generate(tokenizer, generator);
}

}  // namespace

double screen_seconds(const BudgetPilot& pilot, const DecideOptions& decide,
                      const std::vector<int64_t>& buckets) {
  return pilot.seconds + seconds_for(pilot, buckets,
                                     std::min(decide.aa_documents, decide.documents) +
                                         kArmsOfScreen * decide.documents);
}

double plan_seconds(const BudgetPilot& pilot, const DecideOptions& decide,
                    const std::vector<int64_t>& buckets) {
  return screen_seconds(pilot, decide, buckets) +
         seconds_for(pilot, buckets, kArmsOfTrials * decide.documents + kContexts);
}

BudgetPlan plan_for_budget(const BudgetPilot& pilot, const DecideOptions& asked,
                           const std::vector<int64_t>& buckets, double minutes,
                           bool is_margin_fixed) {
  const std::vector<Candidate> all = candidates(pilot, asked, buckets, is_margin_fixed);
  for (const Candidate& one : all) {
    BudgetPlan plan{one.decide, one.buckets, plan_seconds(pilot, one.decide, one.buckets),
                    0,          0,           {}};
    if (plan.seconds > 60 * minutes) continue;
    plan.screen_seconds = screen_seconds(pilot, one.decide, one.buckets);
    plan.full_seconds = plan_seconds(pilot, asked, buckets);
    explain(pilot, asked, buckets, minutes, plan);
    return plan;
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& one : all) {
    least = std::min(least, plan_seconds(pilot, one.decide, one.buckets));
  }
  throw ValueError(fmt::format(
      "budget: expected at least {}, for {} tokens under the margin {}, found {:.4g} min; "
      "shorter --buckets take less",
      minutes_text(least), all.back().buckets.front(), all.back().decide.preset, minutes));
}

BudgetPilot run_budget_pilot(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                             const StudyOptions& options, const std::filesystem::path& file,
                             double most_seconds, Progress& progress) {
  if (std::filesystem::exists(file)) return read_pilot(file);
  const Clock::time_point start = Clock::now();
  EngineRunner runner(model, options.plan, model->spec().eos_ids, line_end_ids(tokenizer),
                      options.max_new_tokens, options.sampling);
  const std::vector<RunnerArm> arms = {
      {"bf16", {}, false},
      {"fp8_scale1",
       {{ArmLayout::kFp8Scale1, {}, options.decide.math, options.decide.rounding, ""}, {}},
       false}};
  BudgetPilot out;
  for (size_t i = 0; i < options.buckets.size(); ++i) {
    const int64_t bucket = options.buckets[i];
    const double until =
        most_seconds * static_cast<double>(i + 1) / static_cast<double>(options.buckets.size());
    const Clock::time_point begin = Clock::now();
    int64_t done = 0;
    for (const Document& document : pilot_documents(tokenizer, options, bucket)) {
      progress.check();
      progress.update("budget: how fast this machine answers", static_cast<int64_t>(i),
                      std::ssize(options.buckets), "lengths");
      const auto answers = runner.answer(document, arms);
      ++done;
      for (size_t q = 0; q < document.questions.size(); ++q) {
        ++out.questions;
        out.flips += is_right(document.questions[q], answers[0][q], tokenizer) !=
                     is_right(document.questions[q], answers[1][q], tokenizer);
      }
      if (seconds_since(start) > until) break;
    }
    out.lengths.push_back({bucket, seconds_since(begin) / static_cast<double>(2 * done)});
  }
  out.seconds = seconds_since(start);
  write_file_atomically(file, pilot_json(out).dump(2) + "\n");
  return out;
}

}  // namespace kv
