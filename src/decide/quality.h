#pragma once

#include <string>
#include <vector>

#include "decide/options.h"
#include "decide/pairs.h"
#include "decide/verdict.h"
#include "stats/paired.h"

namespace kv {

/// What a comparison is about.
struct ComparisonNames {
  std::string block, arm, reference;
};

/// A table with the summaries it was computed from, bucket by bucket.
struct Comparison {
  ArmTable table;
  std::vector<PairedSummary> scores;
};

/// All tests of one arm against one reference on one block: bucket verdicts at margin.bucket,
/// overall and validity, and the family of tests for a persistent shift (overall, trend, sign,
/// every bucket; Holm; each with its sign in both replicate halves). aa_flips is the flip rate of
/// the control's repeat, which sample sizes are planned with at least. Every bucket needs 2
/// documents.
Comparison compare(const DecideOptions& options, const ComparisonNames& names,
                   const std::vector<PairedBucket>& buckets, const Look& look, double aa_flips);

/// Buckets with a loss: MATERIAL_LOSS, LOSS_UNSIZED or rejected by Holm; all if the shift is
/// uniform or no bucket stands out.
std::vector<std::string> weak_buckets(const ArmTable& table);

/// Every bucket outside `weak` NON_INFERIOR to the table's reference.
bool has_no_regression(const ArmTable& table, const std::vector<std::string>& weak);

/// The pooled test of "better" over the buckets `weak`.
struct Improvement {
  bool is_shown = false;  // rejects at the look's level and no bucket of `weak` is worse
  double diff = 0, p = 1;
  int64_t n = 0;
  double n_required = 0;  // questions per bucket to show a gain of this size
};
Improvement test_improvement(const DecideOptions& options, const Comparison& comparison,
                             const std::vector<std::string>& weak);

/// Questions per bucket that would make every part of Q_PASS pass at the planned power if there is
/// no loss; for a part that so many did not decide, if its loss is the one observed.
double questions_required(const ArmTable& table);

/// "bucket 512: -1.25 points [-3.4, 0.9] at 95 %, 200 questions on 50 documents, 5 lost, 3 gained:
/// NON_INFERIOR at 5 points".
std::string describe(const BucketRow& row, double margin, double alpha);
std::string describe(const OverallRow& row, std::string_view what, double alpha);

/// A bucket's share of the traffic, in the unit of the option; 1 when none is given. Throws
/// ValueError for a bucket without a share where others have one.
double traffic_share(const DecideOptions& options, const std::string& bucket);

}  // namespace kv
