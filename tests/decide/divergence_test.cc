// Where generations leave the control's: TV-10 through records, near ties, and what an arm beside
// itself gives.

#include "decide/divergence.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decide/verdict_json.h"
#include "evaluate/generation.h"

namespace kv {
namespace {

GenerationRecord generation(const std::string& block, const std::string& arm,
                            const std::string& bucket, int number) {
  GenerationRecord out;
  out.block = block;
  out.arm = arm;
  out.bucket = bucket;
  out.example_id = "q" + std::to_string(number);
  out.document = "d" + std::to_string(number);
  out.record_id = generation_record_id(block, arm, out.example_id, 0);
  return out;
}

/// TV-10, with the control's margin at every divergence.
Records tv10(double margin) {
  constexpr std::pair<int64_t, bool> kEnds[] = {{5, true}, {12, true},  {20, false}, {20, false},
                                                {3, true}, {20, false}, {17, true},  {20, false}};
  Records out;
  int number = 0;
  for (const auto& [index, diverged] : kEnds) {
    GenerationRecord record = generation("E1", "fp8_scale1", "512", number++);
    record.fdi = index;
    record.diverged = diverged;
    record.margin = diverged ? margin : 0;
    out.generations.push_back(record);
  }
  return out;
}

TEST(Divergence, Tv10FromRecords) {
  const std::vector<DivergenceRow> rows = divergence_rows(tv10(0.4));
  ASSERT_EQ(rows.size(), 1u);
  const DivergenceRow& row = rows.front();
  EXPECT_EQ(row.block + "/" + row.arm + "/" + row.bucket, "E1/fp8_scale1/512");
  EXPECT_EQ(row.n, 8);
  EXPECT_EQ(row.documents, 8);
  EXPECT_EQ(row.diverged, 4);
  EXPECT_EQ(row.near_ties, 0);
  EXPECT_EQ(row.exact_match_rate, 0.5);
  EXPECT_DOUBLE_EQ(row.hazard, 4.0 / 117);
  EXPECT_EQ(row.longest, 20);
  EXPECT_EQ(row.median, 17);
  const double expected[] = {.875, .75, .625, .5};
  ASSERT_EQ(row.curve.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(row.curve[i].survival, expected[i]);
    EXPECT_LT(row.curve[i].interval.lo, expected[i]);
    EXPECT_GT(row.curve[i].interval.hi, expected[i]);
  }
  EXPECT_DOUBLE_EQ(row.agreeing, 0.5);
  EXPECT_EQ(row.undamaged, row.agreeing);
  EXPECT_EQ(row.undamaged_interval.lo, row.agreeing_interval.lo);
}

TEST(Divergence, NearTiesAreNoDamage) {
  const DivergenceRow row = divergence_rows(tv10(0.0999)).front();
  EXPECT_EQ(row.diverged, 4);
  EXPECT_EQ(row.near_ties, 4);
  EXPECT_DOUBLE_EQ(row.agreeing, 0.5);
  EXPECT_EQ(row.undamaged, 1);
  EXPECT_EQ(row.undamaged_interval.hi, 1);
  EXPECT_LT(row.undamaged_interval.lo, 0.75);  // eight documents
  EXPECT_EQ(divergence_rows(tv10(0.1)).front().near_ties, 0);
  // The one that parts at 3 is at risk up to there, and no longer: 7, 6 and 5 are left.
  Records mixed = tv10(0.5);
  mixed.generations[4].margin = 0.01;
  EXPECT_DOUBLE_EQ(divergence_rows(mixed).front().undamaged, 6.0 / 7 * 5 / 6 * 4 / 5);
}

TEST(Divergence, OfAnArmFromItselfIsNone) {
  Records records;
  for (int i = 0; i < 30; ++i) {
    GenerationRecord control = generation("AA", "bf16", "512", i);
    for (int t = 0; t <= i % 7; ++t) {
      control.ids.push_back(100 * i + t);
      control.margins.push_back(0.01);
    }
    GenerationRecord repeat = generation("AA", "bf16#2", "512", i);
    repeat.ids = control.ids;
    compare_with_control(repeat, control);
    records.generations.push_back(control);
    records.generations.push_back(repeat);
  }
  const std::vector<DivergenceRow> rows = divergence_rows(records);
  ASSERT_EQ(rows.size(), 1u) << "the control is compared with nothing";
  EXPECT_EQ(rows[0].arm, "bf16#2");
  EXPECT_EQ(rows[0].n, 30);
  EXPECT_EQ(rows[0].diverged, 0);
  EXPECT_EQ(rows[0].hazard, 0);
  EXPECT_EQ(rows[0].exact_match_rate, 1);
  EXPECT_EQ(rows[0].median, std::nullopt);
  EXPECT_TRUE(rows[0].curve.empty());
  EXPECT_EQ(rows[0].agreeing, 1);
  EXPECT_NEAR(rows[0].agreeing_interval.lo, 0.8865, 1e-4);  // Wilson, 30 of 30
}

TEST(Divergence, RowsStandInTheOrderOfBlocksArmsAndBuckets) {
  Records records;
  for (const auto& [block, arm, bucket] : std::vector<std::array<std::string, 3>>{
           {"E1", "b", "2048"}, {"AA", "c", "512"}, {"E1", "b", "512"}, {"E1", "a", "512"}}) {
    records.generations.push_back(generation(block, arm, bucket, 1));
    records.generations.back().fdi = 4;
    records.generations.back().sample = block == "AA" ? 2 : 0;
  }
  std::string order;
  for (const DivergenceRow& row : divergence_rows(records)) {
    order += row.block + row.arm + row.bucket + " ";
    EXPECT_EQ(row.is_sampled, row.block == "AA");
  }
  EXPECT_EQ(order, "E1b512 E1b2048 AAc512 E1a512 ");
}

/// Decisions of runs that have no such records keep their bytes.
TEST(Divergence, StandsInTheDecisionWhereThereIsAny) {
  Verdict verdict;
  EXPECT_EQ(verdict_json(verdict).find("divergence"), std::string::npos);
  verdict.divergence = divergence_rows(tv10(0.4));
  const auto json = nlohmann::json::parse(verdict_json(verdict)).at("divergence");
  EXPECT_EQ(json.at("near_tie"), 0.1);
  const auto& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("diverged"), 4);
  EXPECT_EQ(row.at("median"), 17);
  EXPECT_EQ(row.at("curve").at(3).at("survival"), 0.5);
  EXPECT_EQ(row.at("curve").at(3).at("interval").size(), 2u);
}

}  // namespace
}  // namespace kv
