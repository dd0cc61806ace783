// Intervals of the survival of agreement, with examples that fall into clusters.

#include "stats/survival.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

// TV-10.
const std::vector<FirstDivergence> kExamples{{5, true}, {12, true},  {20, false}, {20, false},
                                             {3, true}, {20, false}, {17, true},  {20, false}};

std::vector<int64_t> own_clusters(size_t n) {
  std::vector<int64_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// With one example a cluster the spread is Greenwood's, which is summed here by hand.
TEST(SurvivalIntervals, AreGreenwoodsWithoutClusters) {
  const auto found = survival_intervals(kExamples, own_clusters(8), 0.95);
  const DivergenceSummary summary = summarize_divergence(kExamples);
  ASSERT_EQ(found.size(), 4u);
  double variance = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const auto at_risk = 8.0 - static_cast<double>(i);  // nobody is censored before 20
    variance += 1 / (at_risk * (at_risk - 1));
    const double s = summary.curve[i].survival;
    const double reach = critical_t(0.95, 7) * std::sqrt(variance * 8 / 7) / -std::log(s);
    EXPECT_NEAR(found[i].lo, std::pow(s, std::exp(reach)), 1e-12);
    EXPECT_NEAR(found[i].hi, std::pow(s, std::exp(-reach)), 1e-12);
    EXPECT_LT(found[i].lo, s);
    EXPECT_GT(found[i].hi, s);
  }
}

TEST(SurvivalIntervals, AreNotImpressedByCopiesWithinACluster) {
  const auto once = survival_intervals(kExamples, own_clusters(8), 0.95);
  std::vector<FirstDivergence> examples;
  std::vector<int64_t> clusters;
  for (int copy = 0; copy < 5; ++copy) {
    examples.insert(examples.end(), kExamples.begin(), kExamples.end());
    for (int64_t id = 0; id < 8; ++id) clusters.push_back(7 * id - 20);
  }
  const auto copied = survival_intervals(examples, clusters, 0.95);
  ASSERT_EQ(copied.size(), once.size());
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_NEAR(copied[i].lo, once[i].lo, 1e-12);
    EXPECT_NEAR(copied[i].hi, once[i].hi, 1e-12);
  }
}

/// Documents of four answers, the hazard of each document drawn anew: the interval that counts
/// documents covers the truth as often as it says, one that counts answers does not.
TEST(SurvivalIntervals, CoverTheTruthWhenDocumentsDiffer) {
  constexpr int kRuns = 400, kDocuments = 60, kAnswers = 4;
  constexpr int64_t kLength = 16;
  const std::array<double, 2> hazards = {0.005, 0.12};
  double truth = 0;
  for (const double hazard : hazards) truth += std::pow(1 - hazard, kLength) / 2;
  SplitMix64 random(7);
  int covered = 0, covered_naive = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<FirstDivergence> examples;
    std::vector<int64_t> documents;
    for (int d = 0; d < kDocuments; ++d) {
      const double hazard = hazards[random.below(2)];
      for (int a = 0; a < kAnswers; ++a) {
        int64_t t = 1;
        while (t < kLength && random.uniform() >= hazard) ++t;
        const bool diverged = t < kLength || random.uniform() < hazard;
        examples.push_back({t, diverged});
        documents.push_back(d);
      }
    }
    const auto covers = [&](const std::vector<int64_t>& clusters) {
      const Interval end = survival_intervals(examples, clusters, 0.95).back();
      return end.lo <= truth && truth <= end.hi;
    };
    covered += covers(documents);
    covered_naive += covers(own_clusters(examples.size()));
  }
  // 95 % of 400 have a standard error of 1.1 %.
  EXPECT_GE(covered, 0.92 * kRuns);
  EXPECT_LE(covered_naive, 0.90 * kRuns);
}

TEST(SurvivalIntervals, SayLittleAtTheEndsOfWhatIsKnown) {
  const std::vector<FirstDivergence> all_gone = {{2, true}, {2, true}, {4, true}};
  const auto found = survival_intervals(all_gone, own_clusters(3), 0.95);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].lo, 0);
  EXPECT_GT(found[1].hi, 0.3);
  const std::vector<int64_t> one(8, 5);
  for (const Interval& interval : survival_intervals(kExamples, one, 0.95)) {
    EXPECT_EQ(interval.lo, 0);
    EXPECT_EQ(interval.hi, 1);
  }
  const std::vector<FirstDivergence> none = {{4, false}, {9, false}};
  EXPECT_TRUE(survival_intervals(none, own_clusters(2), 0.95).empty());
  EXPECT_THROW(survival_intervals(kExamples, own_clusters(7), 0.95), ValueError);
  EXPECT_THROW(survival_intervals(kExamples, own_clusters(8), 1), ValueError);
  EXPECT_THROW(survival_intervals({}, {}, 0.95), ValueError);
}

TEST(SurvivalMedian, IsWhereHalfHaveDiverged) {
  EXPECT_EQ(summarize_divergence(kExamples).median(), 17);
  EXPECT_EQ(summarize_divergence(std::span(kExamples).first(4)).median(), 12);
  EXPECT_EQ(summarize_divergence(std::span(kExamples).subspan(2, 2)).median(), std::nullopt);
}

}  // namespace
}  // namespace kv
