// Planned looks: bounds, what a look sees, and that looking early does not keep what loses.

#include <gtest/gtest.h>

#include <algorithm>

#include "decide/decide.h"
#include "decide/look_plan.h"
#include "decide/quality.h"
#include "decide/verdict_json.h"
#include "kvscale/error.h"
#include "tests/decide/simulated_study.h"
#include "tests/decide/worlds.h"

namespace kv {
namespace {

using test::Rates;
using test::SimulatedStudy;
using test::World;

/// Enough buckets that half of the questions resolve the margin of validity too.
World four_buckets() {
  World world;
  world.buckets = {"512", "1024", "2048", "4096"};
  world.same_draw = 0;
  world.rates = [](const ArmSpec&, const std::string&) { return Rates{0, 0}; };
  return world;
}

const ArmTable& deciding_table(const Verdict& verdict) { return verdict.tables.front(); }

TEST(Looks, BoundsAreThoseOfTheMethodsTable) {
  const std::vector<Look> looks = plan_looks({0.25, 0.5, 1}, 0.025, 0.05);
  ASSERT_EQ(looks.size(), 3u);
  const double accept[] = {4.3326, 2.9631, 1.9686};
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(looks[k].bound, accept[k], 5e-5) << k;
    EXPECT_EQ(looks[k].number, static_cast<int64_t>(k) + 1);
    EXPECT_EQ(looks[k].is_last(), k == 2);
  }
  EXPECT_NEAR(looks[0].shift_level, 8.86e-5, 5e-8);
  EXPECT_NEAR(looks[1].shift_level, 0.00554, 5e-6);
  EXPECT_NEAR(looks[2].shift_level, 0.04824, 5e-6);
}

TEST(Looks, OneLookIsTheOrdinaryTest) {
  const Look look = plan_looks({1}, 0.025, 0.05).front();
  EXPECT_NEAR(look.bound, 1.959963984540054, 1e-12);
  EXPECT_EQ(look.shift_level, 0.05);
  EXPECT_TRUE(look.is_last());
}

TEST(Looks, DocumentsComeInInPrefixesThatEndWithAll) {
  const std::vector<double> fractions = {0.25, 0.5, 1};
  for (const int64_t documents : std::vector<int64_t>{1, 2, 3, 10, 125, 250}) {
    EXPECT_EQ(documents_at(fractions, 3, documents), documents);
    int64_t before = 1;
    for (int64_t i = 0; i < documents; ++i) {
      const int64_t look = look_of(fractions, i, documents);
      EXPECT_GE(look, before);
      EXPECT_LT(i, documents_at(fractions, look, documents));
      if (look > 1) {
        EXPECT_GE(i, documents_at(fractions, look - 1, documents));
      }
      before = look;
    }
  }
  EXPECT_EQ(documents_at(fractions, 1, 250), 63);
  EXPECT_EQ(documents_at(fractions, 2, 250), 125);
}

TEST(Looks, PlansThatAreNoneAreRefused) {
  for (const std::vector<double>& looks :
       {std::vector<double>{}, {0.5}, {0.5, 0.4, 1}, {0, 1}, {0.5, 1.5}}) {
    DecideOptions options = DecideOptions::standard();
    options.looks = looks;
    EXPECT_THROW(check_options(options), ValueError) << looks.size();
  }
}

TEST(Looks, WithoutAnyFlipHalfOfTheQuestionsAreEnough) {
  SimulatedStudy study(four_buckets());
  const Verdict verdict = study.run(DecideOptions::standard());
  EXPECT_EQ(verdict.layout, "fp8_scale1") << verdict_json(verdict);
  const ArmTable& table = deciding_table(verdict);
  EXPECT_EQ(table.look.number, 2);
  EXPECT_EQ(table.buckets[0].n, 500);
  std::vector<int64_t> asked;
  for (const Ask& ask : study.asks()) {
    if (ask.block == "E1") asked.push_back(ask.look);
  }
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 2}));
}

TEST(Looks, AGreatLossEndsTheScreenAtTheSecondLook) {
  World world = four_buckets();
  world.rates = [](const ArmSpec& arm, const std::string&) {
    return arm.layout == ArmLayout::kFp8Scale1 ? Rates{0.3, 0} : Rates{0, 0};
  };
  const Verdict verdict = SimulatedStudy(world).run(DecideOptions::standard());
  EXPECT_EQ(verdict.layout, "fp8_tensor") << verdict_json(verdict);
  EXPECT_EQ(deciding_table(verdict).arm, "fp8_scale1");
  EXPECT_LT(deciding_table(verdict).look.number, 3);
}

// Property (c): a look that decided has decided.
TEST(Looks, LaterAnswersDoNotChangeAnEarlierDecision) {
  SimulatedStudy study(four_buckets());
  const DecideOptions options = DecideOptions::standard();
  const std::string before = verdict_json(study.run(options));
  Ask rest;
  rest.kind = AskKind::kQuality;
  rest.block = "E1";
  rest.look = 3;
  rest.questions_per_document = options.questions_per_document;
  rest.arms = {"bf16", "fp8_scale1"};
  study.answer(rest);
  size_t added = 0;
  for (ExampleRecord& record : study.records().examples) {
    if (record.block != "E1" || record.look != 3 || record.arm == kControlArm) continue;
    record.score = 0;
    ++added;
  }
  ASSERT_GT(added, 1000u);
  EXPECT_EQ(before, verdict_json(std::get<Verdict>(next_step(options, study.evidence()))));
}

PairedBucket bucket_with_losses(const std::string& label, int64_t in_half_1, int64_t in_half_2) {
  PairedBucket out;
  out.bucket = label;
  out.documents = 400;
  out.max_questions = 1;
  out.mean_prompt_tokens = std::stod(label);
  for (int64_t d = 0; d < 400; ++d) {
    const int64_t half = 1 + d % 2, index = d / 2;
    out.reference.push_back(1);
    out.candidate.push_back(index < (half == 1 ? in_half_1 : in_half_2) ? 0 : 1);
    out.document.push_back(d);
    out.half.push_back(half);
  }
  out.chance.assign(400, 0);
  out.reference_valid = out.candidate_valid = std::vector<double>(400, 1);
  return out;
}

TEST(Looks, AShiftMustShowInBothHalves) {
  const DecideOptions options = DecideOptions::quick();
  const Look look = plan_looks({1}, 0.025, 0.05).front();
  const auto shift = [&](int64_t a, int64_t b) {
    return compare(options, {"E1", "fp8_scale1", "bf16"},
                   {bucket_with_losses("512", a, b), bucket_with_losses("1024", a, b)}, look, 0)
        .table;
  };
  EXPECT_NE(shift(10, 10).shift, ShiftType::kNone);
  const ArmTable in_one = shift(20, 0);
  EXPECT_EQ(in_one.shift, ShiftType::kNone);
  EXPECT_DOUBLE_EQ(in_one.buckets[0].half_diffs[0], -0.1);
  EXPECT_DOUBLE_EQ(in_one.buckets[0].half_diffs[1], 0);
  EXPECT_DOUBLE_EQ(in_one.overall.half_diffs[0], -0.1);
}

TEST(Looks, BeforeTheLastOneAShiftInsideTheMarginEndsNothing) {
  DecideOptions options = DecideOptions::standard();
  options.margin = {0.2, 0.1, 0.1};
  options.min_documents = 2;
  const std::vector<PairedBucket> buckets = {bucket_with_losses("512", 16, 16),
                                             bucket_with_losses("1024", 16, 16)};
  Look look = plan_looks({0.25, 0.5, 1}, 0.025, 0.05)[1];
  ArmTable table = compare(options, {"E1", "fp8_scale1", "bf16"}, buckets, look, 0).table;
  ASSERT_NE(table.shift, ShiftType::kNone);
  EXPECT_FALSE(table.is_beyond_margin);
  EXPECT_FALSE(table.is_shift());
  options.margin = {0.07, 0.07, 0.1};
  table = compare(options, {"E1", "fp8_scale1", "bf16"}, buckets, look, 0).table;
  EXPECT_TRUE(table.is_beyond_margin);
  EXPECT_FALSE(table.is_material);
  EXPECT_TRUE(table.is_shift());
}

TEST(Looks, WithFewDocumentsOnlyTheLastOneIsTaken) {
  for (const int64_t documents : std::vector<int64_t>{2, 4, 10, 57}) {
    World world = four_buckets();
    world.documents = documents;
    SimulatedStudy study(world);
    const Verdict verdict = study.run(DecideOptions::standard());
    EXPECT_EQ(verdict.sub_reason, "INSUFFICIENT_SAMPLES") << documents;
    for (const Ask& ask : study.asks()) {
      if (ask.block == "E1") {
        EXPECT_EQ(ask.look, 3) << documents;
      }
    }
  }
}

TEST(Looks, ABlockWithAnEmptyHalfIsNotJudgedByHalves) {
  PairedBucket one = bucket_with_losses("512", 20, 20);
  std::ranges::fill(one.half, 1);
  const Look look = plan_looks({1}, 0.025, 0.05).front();
  const ArmTable table = compare(DecideOptions::quick(), {"E1", "fp8_scale1", "bf16"},
                                 {one, bucket_with_losses("1024", 20, 20)}, look, 0)
                             .table;
  EXPECT_NE(table.shift, ShiftType::kNone);
}

}  // namespace
}  // namespace kv
