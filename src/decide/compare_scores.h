#pragma once

#include <optional>
#include <string>
#include <vector>

#include "decide/options.h"
#include "decide/verdict.h"
#include "evaluate/score_file.h"
#include "stats/intervals.h"

namespace kv {

/// One arm's mean in one bucket or overall (method 4.1): Wilson's interval for scores of 0 and 1,
/// counts divided by the arm's own design effect; else mean +- t se, clustered where there are
/// clusters.
struct ArmMean {
  double mean = 0;
  Interval interval;
  bool is_binary = false;
};

/// mean(candidate) / mean(control) with a 95 % interval: from a bootstrap of clusters within
/// buckets where every bucket has at least 100, else by the delta method.
struct RecoveryResult {
  double ratio = 1;
  std::optional<Interval> interval;  // none where no example differs: nothing says how wide it is
  bool is_bootstrap = false;
};

/// Two arms from stored scores, by the tests that decide uses, in one look at everything. It
/// accepts nothing: who looked at the data before, and how often, the files do not say.
struct ScoreComparison {
  DecideOptions options;  // margins and levels
  ArmTable table;
  std::vector<ArmMean> control, candidate;           // buckets in the table's order, then overall
  std::optional<RecoveryResult> recovery;            // none when an arm scores 0
  std::optional<double> auc_control, auc_candidate;  // with known lengths only
  std::optional<ArmTable> repeat;                    // the control against itself
  bool has_clusters = false, has_validity = false;
};

/// Throws what pair_scores throws. `repeat` may be null; its flip rate is then taken as 0.
ScoreComparison compare_scores(const DecideOptions& options, const ScoreSet& control,
                               const ScoreSet& candidate, const ScoreSet* repeat);

}  // namespace kv
