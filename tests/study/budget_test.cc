// What fits into a time: chosen by a pilot's numbers, before the run.

#include "study/budget.h"

#include <gtest/gtest.h>

#include "checkpoint/load_tokenizer.h"
#include "kvscale/error.h"
#include "tests/study/plants.h"

namespace kv {
namespace {

/// 0.1 s a document at 512 tokens, 0.2 at 1,024, 0.4 at 2,048; 156 questions.
BudgetPilot pilot(int64_t flips = 0) {
  return {{{512, 0.1}, {1024, 0.2}, {2048, 0.4}}, 156, flips, 10};
}

const std::vector<int64_t> kBuckets = {512, 1024, 2048};

BudgetPlan planned(double minutes, int64_t flips = 0, bool is_margin_fixed = false) {
  return plan_for_budget(pilot(flips), DecideOptions::standard(), kBuckets, minutes,
                         is_margin_fixed);
}

std::string all_notices(const BudgetPlan& plan) {
  std::string out;
  for (const std::string& one : plan.notices) out += one + "\n";
  return out;
}

TEST(Budget, SecondsAreDocumentsTimesArmsAtTheMeasuredRate) {
  const DecideOptions standard = DecideOptions::standard();
  // 63 for AA and 2 x 250 for E1, at 0.7 s a document over the three lengths; 10 s of pilot.
  EXPECT_NEAR(screen_seconds(pilot(), standard, kBuckets), 10 + 0.7 * 563, 1e-9);
  // 3 arms on E2 and on E3, 6 contexts of CAL, 4 of ranges and ablation, 10 arms.
  EXPECT_NEAR(plan_seconds(pilot(), standard, kBuckets), 10 + 0.7 * (563 + 1500 + 86), 1e-9);
  EXPECT_THROW(plan_seconds(pilot(), standard, {4096}), ValueError);
}

TEST(Budget, WhatFitsIsNotCut) {
  const BudgetPlan plan = planned(30);
  EXPECT_EQ(plan.decide.preset, "standard");
  EXPECT_EQ(plan.decide.documents, 250);
  EXPECT_EQ(plan.buckets, kBuckets);
  EXPECT_EQ(plan.notices.size(), 1u) << all_notices(plan);
  EXPECT_EQ(plan.seconds, plan.full_seconds);
}

TEST(Budget, FewFlipsNeedFewerDocuments) {
  // No flip of 156: at most 2.4 %, and about 860 questions a bucket decide.
  const BudgetPlan plan = planned(23);
  EXPECT_EQ(plan.decide.preset, "standard");
  EXPECT_LT(plan.decide.documents, 250);
  EXPECT_GE(plan.decide.documents, 100);
  EXPECT_EQ(plan.decide.looks, (std::vector<double>{0.5, 1}));
  EXPECT_LE(plan.seconds, 23 * 60);
  EXPECT_NE(all_notices(plan).find("questions a bucket instead of 1000"), std::string::npos);
  // With many flips they would not: the margin gives way instead.
  EXPECT_EQ(planned(23, 10).decide.preset, "quick");
}

TEST(Budget, TheMarginGivesWayBeforeTheLengths) {
  const BudgetPlan plan = planned(8);
  EXPECT_EQ(plan.decide.preset, "quick");
  EXPECT_EQ(plan.decide.margin, DecideOptions::quick().margin);
  EXPECT_EQ(plan.buckets, kBuckets);
  EXPECT_NE(all_notices(plan).find("cut to the margin quick: 5 points a bucket and 2.5 overall "
                                   "instead of 2 and 1"),
            std::string::npos)
      << all_notices(plan);
  EXPECT_GT(plan.full_seconds, 20 * 60);
  // One that was asked for stays; then the longest lengths go.
  const BudgetPlan fixed = planned(8, 0, true);
  EXPECT_EQ(fixed.decide.preset, "standard");
  EXPECT_LT(fixed.buckets.size(), 3u);
}

TEST(Budget, ThenTheLongestLengthsAreCut) {
  const BudgetPlan plan = planned(3);
  EXPECT_EQ(plan.decide.preset, "quick");
  EXPECT_EQ(plan.buckets, (std::vector<int64_t>{512, 1024}));
  EXPECT_NE(
      all_notices(plan).find("the lengths 2048 were cut: the verdict says nothing about them"),
      std::string::npos);
  EXPECT_LE(plan.seconds, 180);
}

TEST(Budget, WhatFitsInNoWayIsRefusedWithWhatItTakes) {
  try {
    planned(0.5);
    FAIL() << "half a minute is less than 512 tokens take";
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("expected at least 1.0 min, for 512 tokens"),
              std::string::npos)
        << error.what();
  }
}

TEST(Budget, APlanThatMayStayOpenSaysSo) {
  const BudgetPlan plan = planned(8, 40);
  EXPECT_NE(all_notices(plan).find("the verdict may stay open"), std::string::npos)
      << all_notices(plan);
}

TEST(Budget, ThePilotIsMeasuredOnceAndKept) {
  const fixtures::ScratchFolder folder;
  const Plant plant;
  const auto model = plant.load();
  const Tokenizer tokenizer = load_tokenizer(model->checkpoint());
  StudyOptions options;
  options.decide = DecideOptions::quick();
  options.buckets = {128, 160};
  options.form = Form::kCompact;
  NoProgress silent;
  const auto file = folder.path() / "budget.json";
  const BudgetPilot found = run_budget_pilot(model, tokenizer, options, file, 0, silent);
  ASSERT_EQ(found.lengths.size(), 2u);
  EXPECT_EQ(found.questions, 2 * 4) << "no time: one document a length";
  for (const auto& one : found.lengths) EXPECT_GT(one.seconds_per_document, 0);
  EXPECT_LE(found.flips, found.questions);
  const BudgetPilot again = run_budget_pilot(model, tokenizer, options, file, 100, silent);
  EXPECT_EQ(again.questions, found.questions);
  EXPECT_EQ(again.seconds, found.seconds);
  EXPECT_EQ(again.lengths[1].seconds_per_document, found.lengths[1].seconds_per_document);
  std::ofstream(file) << "{\"format\": \"kvscale-budget\", \"schema\": 1}";
  EXPECT_THROW(run_budget_pilot(model, tokenizer, options, file, 0, silent), FormatError);
}

}  // namespace
}  // namespace kv
