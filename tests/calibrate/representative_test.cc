#include "calibrate/representative.h"

#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "stats/representativeness.h"

namespace kv {
namespace {

/// Contexts of two layers: `exceeding` of `n` beyond amax 10 on layer 1 side v, all in one bucket.
std::vector<EvaluatedAmax> contexts(int n, int exceeding) {
  std::vector<EvaluatedAmax> out;
  for (int i = 0; i < n; ++i) {
    const bool beyond = i < exceeding;
    out.push_back({beyond ? "2048" : "512", {9, 10, 8, beyond ? 10.5f : 10.0f}});
  }
  return out;
}

const std::vector<float> kTen(4, 10.0f);

TEST(Exceedance, CountsWhatLiesBeyondAndNothingElse) {
  const std::vector<Exceedance> tests = test_exceedance(kTen, 512, contexts(400, 8));
  ASSERT_EQ(tests.size(), 4u);
  EXPECT_EQ(tests[0].layer, 1);
  EXPECT_EQ(tests[0].side, Side::kV);
  EXPECT_EQ(tests[0].exceeding, 8);
  EXPECT_NEAR(tests[0].p, 0.0013161310, 1e-10);  // method TV-13
  EXPECT_NEAR(tests[0].p_holm, 4 * 0.0013161310, 4e-10);
  EXPECT_EQ(tests[0].buckets, std::vector<std::string>{"2048"});
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(tests[i].p, 1);
}

TEST(Exceedance, NamesLayersSidesAndBuckets) {
  EXPECT_EQ(
      not_representative_text(test_exceedance(kTen, 512, contexts(400, 8)), 0.05),
      "CAL_NOT_REPRESENTATIVE: more contexts exceed the amax of 512 calibration examples than "
      "one population of examples allows, on 1 of 4 layers' sides: layer 1 side v (8 of 400, "
      "up to 10.5 against 10, in bucket 2048; p 0.0053)");
  // Five have p = 0.016 by themselves, which four tests make 0.064.
  EXPECT_EQ(not_representative_text(test_exceedance(kTen, 512, contexts(400, 5)), 0.05), "");
  EXPECT_EQ(not_representative_text(test_exceedance(kTen, 512, contexts(400, 1)), 0.05), "");
  EXPECT_TRUE(test_exceedance(kTen, 512, {}).empty());
  EXPECT_THROW(test_exceedance(kTen, 512, std::vector<EvaluatedAmax>{{"512", {1, 2}}}), ValueError);
}

// Calibration and evaluation drawn from one population, 12 layers' sides: Holm holds the level of
// any rejection. 2,000 draws at 5 %: a share above 7 % has a chance of 1e-4.
TEST(Exceedance, RejectsOnePopulationNoMoreOftenThanItsLevel) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  int rejected = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> amax(12);
    for (int i = 0; i < 6; ++i) {
      for (float& one : amax) one = std::max(one, std::exp(normal(random)));
    }
    std::vector<EvaluatedAmax> evaluated(20, EvaluatedAmax{"512", std::vector<float>(12)});
    for (EvaluatedAmax& one : evaluated) {
      for (float& x : one.amax) x = std::exp(normal(random));
    }
    rejected += test_exceedance(amax, 6, evaluated).front().p_holm < 0.05;
  }
  EXPECT_LT(rejected, 140);
}

TEST(Exceedance, LargestOfHeads) {
  EXPECT_EQ(largest_of_heads(std::vector<float>{1, 2, 4, 3, 5, 5, 0, 7}, 2),
            (std::vector<float>{2, 4, 5, 7}));
}

}  // namespace
}  // namespace kv
