#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "decide/options.h"
#include "model/model.h"
#include "study/progress.h"
#include "study/study_options.h"
#include "text/tokenizer.h"

namespace kv {

/// What a pilot measured: how fast this machine answers, and how often an FP8 cache flips an
/// answer.
struct BudgetPilot {
  struct Length {
    int64_t bucket = 0;
    double seconds_per_document = 0;  // of one arm, its questions included
  };
  std::vector<Length> lengths;  // ascending
  int64_t questions = 0, flips = 0;
  double seconds = 0;  // that it took
};

/// A decision that ends within a time, whatever states it needs.
struct BudgetPlan {
  DecideOptions decide;
  std::vector<int64_t> buckets;
  double seconds = 0;                // of all states, PREFLIGHT to TRY
  double screen_seconds = 0;         // of these, when the first layout passes
  double full_seconds = 0;           // what the plan without a budget would take
  std::vector<std::string> notices;  // what was cut, and why; the first says what is left
};

/// Seconds that a plan takes by the pilot's rates: until the first layout passes, and over all
/// states with one trial. Throws ValueError for a length that the pilot has not.
double screen_seconds(const BudgetPilot& pilot, const DecideOptions& decide,
                      const std::vector<int64_t>& buckets);
double plan_seconds(const BudgetPilot& pilot, const DecideOptions& decide,
                    const std::vector<int64_t>& buckets);

/// The first of these that fits: the plan as asked for; fewer documents, if the pilot's flips say
/// that they decide; the quick margin, unless `is_margin_fixed`; the same without the longest
/// lengths. All is chosen before the run, nothing during it. Throws ValueError when not even the
/// shortest length fits, with the minutes that it takes.
BudgetPlan plan_for_budget(const BudgetPilot& pilot, const DecideOptions& asked,
                           const std::vector<int64_t>& buckets, double minutes,
                           bool is_margin_fixed);

/// Answers documents of every length with a BF16 and an FP8 cache until 50 questions of each length
/// are in, or `most_seconds` are over; one document a length at least. `file` keeps what was
/// measured, so that a run that is taken up again has the plan that it began with.
BudgetPilot run_budget_pilot(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                             const StudyOptions& options, const std::filesystem::path& file,
                             double most_seconds, Progress& progress);

}  // namespace kv
