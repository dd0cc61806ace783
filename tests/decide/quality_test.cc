#include "decide/quality.h"

#include <gtest/gtest.h>

#include "decide/sample_plan.h"
#include "stats/sample_size.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr double kAlpha = thresholds::kAlphaAccept;

/// A bucket of `documents` x `questions` binary answers with the given losses and gains, one a
/// document while there are documents.
PairedBucket bucket_of(const std::string& label, int64_t documents, int64_t questions,
                       int64_t losses, int64_t gains) {
  PairedBucket out;
  out.bucket = label;
  out.documents = documents;
  out.max_questions = questions;
  out.mean_prompt_tokens = std::stod(label);
  for (int64_t q = 0; q < questions; ++q) {
    for (int64_t d = 0; d < documents; ++d) {
      const int64_t i = q * documents + d;
      out.reference.push_back(i >= losses && i < losses + gains ? 0 : 1);
      out.candidate.push_back(i < losses ? 0 : 1);
      out.document.push_back(d);
    }
  }
  out.chance.assign(out.reference.size(), 0);
  out.reference_valid = out.candidate_valid = std::vector<double>(out.reference.size(), 1);
  return out;
}

ArmTable table_of(const std::vector<PairedBucket>& buckets,
                  const DecideOptions& options = DecideOptions::quick()) {
  const Look look = plan_looks({1}, kAlpha, thresholds::kAlphaShift).front();
  return compare(options, {"E1", "fp8_scale1", "bf16"}, buckets, look, 0).table;
}

TEST(Quality, ARowHoldsWhatTheMethodSays) {
  // 400 independent questions, 18 lost, 6 gained: the method's vector for Tango and McNemar.
  const ArmTable table = table_of({bucket_of("512", 400, 1, 18, 6)});
  const BucketRow& row = table.buckets[0];
  EXPECT_EQ(row.id, "E1/fp8_scale1/512");
  EXPECT_EQ(row.n, 400);
  EXPECT_EQ(row.documents, 400);
  EXPECT_DOUBLE_EQ(row.losses, 18);
  EXPECT_DOUBLE_EQ(row.gains, 6);
  EXPECT_DOUBLE_EQ(row.deff, 1);
  EXPECT_DOUBLE_EQ(row.diff, -0.03);
  // With 399 degrees of freedom the bound is 1.9659 instead of 1.9600: 0.3 % of the half width.
  EXPECT_NEAR(row.interval.lo, -0.0569213890, 2e-4);
  EXPECT_NEAR(row.interval.hi, -0.0065114087, 2e-4);
  EXPECT_NEAR(row.p_loss, 0.0073166490, 1e-9);
  EXPECT_EQ(row.verdict, BucketVerdict::kLossUnsized);
  EXPECT_TRUE(table.shift != ShiftType::kNone);
}

TEST(Quality, WhereEnoughForNoLossWereAskedTheLossObservedSaysHowManyAreNeeded) {
  OverallRow passed;
  passed.n = 1040;
  passed.verdict = BucketVerdict::kNonInferior;
  ArmTable table;
  table.validity = passed;
  table.buckets.resize(2);
  for (BucketRow& row : table.buckets) {
    row.n = 520;
    row.verdict = BucketVerdict::kNonInferior;
    row.n_required = 300;
  }
  table.overall.n = 1040;
  table.overall.margin = 0.025;
  table.overall.n_required = 506;
  table.overall.diff = -0.0125;
  EXPECT_EQ(questions_required(table), 4 * 506) << "half of the margin is left";
  table.overall.diff = -0.001;
  EXPECT_EQ(questions_required(table), 2 * 520);
  table.overall.diff = -0.03;
  EXPECT_EQ(questions_required(table), 2 * 520) << "no number shows what is not so";
  table.overall.n_required = 600;
  EXPECT_EQ(questions_required(table), 600) << "more than were asked";
  table.overall = passed;
  EXPECT_EQ(questions_required(table), 300);
}

TEST(Quality, FewDocumentsStayUnresolvedHoweverCleanTheyAre) {
  const ArmTable table = table_of({bucket_of("512", 29, 40, 0, 0)});
  EXPECT_EQ(table.buckets[0].verdict, BucketVerdict::kUnresolved);
  EXPECT_NE(table.buckets[0].note.find("TOO_FEW_CLUSTERS"), std::string::npos);
  EXPECT_TRUE(table.is_open());
  EXPECT_TRUE(table_of({bucket_of("512", 30, 40, 0, 0)}).is_pass);
}

TEST(Quality, TheStandardMarginWantsManyDocumentsAndFewQuestionsOnEach) {
  const DecideOptions standard = DecideOptions::standard();
  EXPECT_FALSE(table_of({bucket_of("512", 99, 8, 0, 0)}, standard).is_pass);
  EXPECT_FALSE(table_of({bucket_of("512", 125, 9, 0, 0)}, standard).is_pass);
  EXPECT_TRUE(table_of({bucket_of("512", 125, 8, 0, 0)}, standard).is_pass);
}

TEST(Quality, EveryBucketMustPass) {
  const ArmTable table = table_of({bucket_of("512", 100, 4, 0, 0), bucket_of("1024", 100, 4, 0, 0),
                                   bucket_of("2048", 100, 4, 48, 0)});
  EXPECT_FALSE(table.is_pass);
  EXPECT_TRUE(table.is_material);
  EXPECT_EQ(weak_buckets(table), std::vector<std::string>{"2048"});
  EXPECT_FALSE(has_no_regression(table, {}));
  EXPECT_TRUE(has_no_regression(table, {"2048"}));
}

TEST(Quality, InvalidAnswersCountOnTheirOwn) {
  PairedBucket bucket = bucket_of("512", 100, 4, 0, 0);
  for (size_t i = 0; i < 20; ++i) bucket.candidate_valid[i] = 0;
  const ArmTable table = table_of({bucket});
  EXPECT_TRUE(is_non_inferior(table.overall.verdict));
  EXPECT_FALSE(is_non_inferior(table.validity.verdict));
  EXPECT_FALSE(table.is_pass);
}

TEST(Quality, AGrowingLossIsCalledSo) {
  const DecideOptions options = DecideOptions::standard();
  const ArmTable table =
      table_of({bucket_of("512", 250, 4, 5, 5), bucket_of("1024", 250, 4, 12, 4),
                bucket_of("2048", 250, 4, 24, 4), bucket_of("4096", 250, 4, 50, 4)},
               options);
  EXPECT_EQ(table.shift, ShiftType::kLengthGrowing);
  const ArmTable uniform =
      table_of({bucket_of("512", 250, 4, 25, 5), bucket_of("1024", 250, 4, 24, 4),
                bucket_of("2048", 250, 4, 24, 4), bucket_of("4096", 250, 4, 25, 5)},
               options);
  EXPECT_EQ(uniform.shift, ShiftType::kUniform);
  EXPECT_EQ(weak_buckets(uniform).size(), 4u);
}

TEST(Quality, SwappingTheArmsMirrorsEverything) {
  SplitMix64 rng(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto losses = static_cast<int64_t>(rng.next() % 60);
    const auto gains = static_cast<int64_t>(rng.next() % 60);
    std::vector<PairedBucket> buckets = {bucket_of("512", 60, 4, losses, gains),
                                         bucket_of("1024", 60, 4, gains / 2, losses / 3)};
    const ArmTable table = table_of(buckets);
    for (PairedBucket& bucket : buckets) std::swap(bucket.reference, bucket.candidate);
    const ArmTable mirror = table_of(buckets);
    for (size_t i = 0; i < 2; ++i) {
      const BucketRow &a = table.buckets[i], &b = mirror.buckets[i];
      EXPECT_DOUBLE_EQ(a.diff, -b.diff);
      EXPECT_DOUBLE_EQ(a.losses, b.gains);
      EXPECT_NEAR(a.interval.lo, -b.interval.hi, 1e-9);
      EXPECT_NEAR(a.interval.hi, -b.interval.lo, 1e-9);
      if (a.interval.hi < 0) {
        EXPECT_GT(b.interval.lo, 0);
      }
    }
    EXPECT_FALSE(table.is_material && mirror.is_material &&
                 table.buckets[0].diff * table.buckets[1].diff > 0);
  }
}

TEST(Quality, OverallOfUnequalBucketsWeighsThemByTraffic) {
  DecideOptions options = DecideOptions::quick();
  const std::vector<PairedBucket> buckets = {bucket_of("512", 100, 1, 10, 0),
                                             bucket_of("1024", 100, 4, 0, 0)};
  EXPECT_NEAR(table_of(buckets, options).overall.diff, -0.05, 1e-12);
  options.traffic = {{"512", 1}, {"1024", 9}};
  EXPECT_NEAR(table_of(buckets, options).overall.diff, -0.01, 1e-12);
  options.traffic = {{"512", 1}};
  EXPECT_ANY_THROW(table_of(buckets, options));
}

TEST(Quality, ARecoveryIsAMarginOfTheControlsOwnMean) {
  DecideOptions options = DecideOptions::quick();
  // Half of the answers are right with BF16; 12 of 1,000 are lost, none gained.
  PairedBucket bucket = bucket_of("512", 1000, 1, 12, 0);
  for (size_t i = 500; i < 1000; ++i) bucket.reference[i] = bucket.candidate[i] = 0;
  EXPECT_EQ(table_of({bucket}, options).buckets[0].verdict, BucketVerdict::kTolerableShift);
  options.margin.recovery = 0.97;
  const ArmTable table = table_of({bucket}, options);
  EXPECT_NEAR(table.buckets[0].margin, 0.015, 1e-12);
  EXPECT_NEAR(table.overall.margin, 0.015, 1e-12);
  EXPECT_DOUBLE_EQ(table.validity.margin, options.margin.validity);
  EXPECT_EQ(table.buckets[0].verdict, BucketVerdict::kLossUnsized);
  EXPECT_FALSE(table.is_pass);
  options.margin.recovery = 0.9;
  EXPECT_EQ(table_of({bucket}, options).buckets[0].verdict, BucketVerdict::kTolerableShift);
  // A reference that is always wrong leaves nothing to lose, and no test of nothing.
  std::ranges::fill(bucket.reference, 0);
  EXPECT_TRUE(std::isfinite(table_of({bucket}, options).buckets[0].p_ni));
}

TEST(Quality, WhatTheBucketsSayTogether) {
  // The method's vector of fractions: recovery and its interval, every example a document.
  PairedBucket pairs;
  pairs.bucket = "512";
  pairs.reference = {1, 1, 0, 1, 1, 1, .5, 1, 1, 0, 1, 1, .75, 1, 1, 1, .25, 1, 1, 1};
  pairs.candidate = {1, 1, 0, 0, 1, 1, .5, 1, .75, 0, 1, 1, .25, 1, 1, .5, .25, 1, 1, 1};
  pairs.documents = pairs.n();
  pairs.max_questions = 1;
  pairs.mean_prompt_tokens = 512;
  for (int64_t i = 0; i < pairs.n(); ++i) pairs.document.push_back(i);
  pairs.chance.assign(20, 0);
  pairs.reference_valid = pairs.candidate_valid = std::vector<double>(20, 1);
  pairs.candidate_valid[3] = 0;
  const ArmTable one = table_of({pairs});
  EXPECT_NEAR(one.curve.recovery, 0.8636363636, 1e-9);
  EXPECT_NEAR(one.curve.recovery_interval.lo, 0.7362828979, 1e-9);
  EXPECT_NEAR(one.curve.recovery_interval.hi, 1.0130179184, 1e-9);
  EXPECT_TRUE(std::isnan(one.curve.auc_ctrl)) << "one length";
  EXPECT_DOUBLE_EQ(one.buckets[0].validity_ctrl, 1);
  EXPECT_DOUBLE_EQ(one.buckets[0].validity_cand, 0.95);

  const ArmTable two = table_of({bucket_of("512", 100, 1, 10, 0), bucket_of("1024", 100, 1, 0, 0)});
  EXPECT_NEAR(two.curve.auc_ctrl, 1, 1e-12);
  EXPECT_NEAR(two.curve.auc_cand, 0.95, 1e-12);
  EXPECT_NEAR(two.curve.trend_slope, 0.1, 1e-12) << "ten points less lost, one doubling further";
  EXPECT_EQ(two.curve.negative_buckets, 1);
  EXPECT_EQ(two.curve.nonzero_buckets, 1);
  EXPECT_GT(two.curve.q, 0);
}

TEST(Quality, ImprovementIsOneSidedAndBarsAWorseBucket) {
  const DecideOptions options = DecideOptions::quick();
  const auto improvement = [&](const std::vector<PairedBucket>& buckets) {
    return test_improvement(options,
                            compare(options, {"E2", "fp8_tensor", "fp8_scale1"}, buckets,
                                    plan_looks({1}, kAlpha, thresholds::kAlphaShift).front(), 0),
                            {"512", "1024"});
  };
  EXPECT_TRUE(
      improvement({bucket_of("512", 100, 2, 2, 12), bucket_of("1024", 100, 2, 3, 14)}).is_shown);
  EXPECT_FALSE(
      improvement({bucket_of("512", 100, 2, 12, 2), bucket_of("1024", 100, 2, 14, 3)}).is_shown);
  EXPECT_FALSE(
      improvement({bucket_of("512", 100, 2, 0, 30), bucket_of("1024", 100, 2, 1, 0)}).is_shown);
  EXPECT_FALSE(
      improvement({bucket_of("512", 100, 2, 0, 0), bucket_of("1024", 100, 2, 0, 0)}).is_shown);
}

TEST(SamplePlanTest, AgreesWithTheMethodsTable) {
  // pd is an upper bound of the observed rate, so the plan asks for at least the table's number.
  const SamplePlan plan{0.025, 0.9, 0};
  const PairedSummary none = summarize_scores(bucket_of("512", 400, 1, 0, 0));
  EXPECT_GE(plan.questions(none, 0.02), 189);
  const PairedSummary some = summarize_scores(bucket_of("512", 10000, 1, 50, 50));
  EXPECT_NEAR(plan.questions(some, 0.01), 1051, 1051 * 0.25);
  // The control's own flips bound it from below.
  const SamplePlan noisy{0.025, 0.9, 0.05};
  EXPECT_NEAR(noisy.questions(none, 0.02), 1314, 1);
}

// The level: a loss of exactly the margin in one bucket passes in at most alpha of runs.
TEST(QualityLevel, FalsePassesAtTheMarginStayNearAlpha) {
  const DecideOptions options = DecideOptions::quick();
  SplitMix64 rng(11);
  const auto uniform = [&] { return static_cast<double>(rng.next() >> 11) * 0x1p-53; };
  constexpr int kRuns = 2000;
  int passes = 0;
  for (int run = 0; run < kRuns; ++run) {
    PairedBucket bucket = bucket_of("512", 50, 4, 0, 0);
    std::vector<double> luck(50);
    for (double& one : luck) one = uniform();
    for (size_t i = 0; i < bucket.candidate.size(); ++i) {
      const double u = uniform() < 0.1 ? luck[static_cast<size_t>(bucket.document[i])] : uniform();
      bucket.candidate[i] = u < 0.07 ? 0 : 1;
      if (u > 0.98) bucket.reference[i] = 0;  // 7 % lost, 2 % gained: 5 points
    }
    passes += is_non_inferior(table_of({bucket}, options).buckets[0].verdict);
  }
  // The method's simulation finds 1 to 3.4 % with clusters; 2000 runs have a standard error of 0.4.
  EXPECT_LE(passes, kRuns * 0.04);
  EXPECT_GE(passes, kRuns * 0.003);
}

}  // namespace
}  // namespace kv
