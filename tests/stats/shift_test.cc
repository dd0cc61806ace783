// Paired scores, clusters and verdicts: properties that hold for every input.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/shift.h"
#include "stats/splitmix64.h"
#include "stats/tango.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;

/// Scores of two arms, binary or not, with documents as clusters.
struct RandomPairs {
  Doubles control, candidate;
  std::vector<int64_t> documents;
};

RandomPairs random_pairs(SplitMix64& random, bool is_binary, size_t documents, size_t questions) {
  RandomPairs out;
  for (size_t i = 0; i < documents * questions; ++i) {
    const double a = random.uniform(), b = random.uniform();
    out.control.push_back(is_binary ? a < 0.8 : a);
    out.candidate.push_back(is_binary ? b < 0.75 : b);
    out.documents.push_back(static_cast<int64_t>(mix(i / questions)));
  }
  return out;
}

TEST(Clusters, OneExampleEachIsTheIidError) {
  SplitMix64 random(8);
  for (int i = 0; i < 200; ++i) {
    const RandomPairs pairs = random_pairs(random, i % 2 == 0, 2 + random.below(80), 1);
    const PairedSummary s = summarize_pairs(pairs.control, pairs.candidate, pairs.documents);
    const double n = static_cast<double>(s.n);
    EXPECT_EQ(s.clusters, s.n);
    EXPECT_NEAR(s.se_cr0, s.se_iid * std::sqrt((n - 1) / n), 1e-14);
    EXPECT_NEAR(s.se_cr1, s.se_iid, 1e-14);
    EXPECT_NEAR(s.deff, 1, 1e-12);
    const PairedSummary iid = summarize_pairs(pairs.control, pairs.candidate);
    EXPECT_NEAR(iid.se_cr0, s.se_cr0, 1e-14);
    EXPECT_EQ(iid.se_cr1, iid.se_iid);
  }
}

TEST(Clusters, CopiesOfAnExampleCountOnce) {
  SplitMix64 random(9);
  const RandomPairs once = random_pairs(random, true, 150, 1);
  RandomPairs copied;
  for (int copy = 0; copy < 4; ++copy) {
    for (size_t i = 0; i < 150; ++i) {
      copied.control.push_back(once.control[i]);
      copied.candidate.push_back(once.candidate[i]);
      copied.documents.push_back(once.documents[i]);
    }
  }
  const PairedSummary a = summarize_pairs(once.control, once.candidate, once.documents);
  const PairedSummary b = summarize_pairs(copied.control, copied.candidate, copied.documents);
  EXPECT_NEAR(b.se_cr1, a.se_cr1, 1e-14);
  EXPECT_NEAR(b.deff, 4 * (600 - 1) / (600 - 4.0), 1e-9);
  // n / deff is 149.25 instead of 150: 0.25 % of the width.
  const Interval one = bucket_shift(a).interval(1.96), four = bucket_shift(b).interval(1.96);
  EXPECT_NEAR(one.lo, four.lo, 0.003 * (one.hi - one.lo));
  EXPECT_NEAR(one.hi, four.hi, 0.003 * (one.hi - one.lo));
}

TEST(Clusters, TheirOrderDoesNotMatter) {
  SplitMix64 random(10);
  const RandomPairs p = random_pairs(random, false, 30, 5);
  std::vector<size_t> order(p.control.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  RandomPairs shuffled;
  for (const size_t i : order) {
    shuffled.control.push_back(p.control[i]);
    shuffled.candidate.push_back(p.candidate[i]);
    shuffled.documents.push_back(p.documents[i]);
  }
  const PairedSummary a = summarize_pairs(p.control, p.candidate, p.documents);
  const PairedSummary b = summarize_pairs(shuffled.control, shuffled.candidate, shuffled.documents);
  EXPECT_NEAR(a.se_cr1, b.se_cr1, 1e-14);
  EXPECT_NEAR(a.diff, b.diff, 1e-14);
}

TEST(Shift, NoDifferenceAtAllIsNotCertainty) {
  const Doubles scores{0.3, 0.7, 0.7, 0.2, 1, 0};
  const Shift shift = bucket_shift(summarize_pairs(scores, scores));
  const Interval interval = shift.interval(1.96);
  EXPECT_NEAR(interval.hi, 1.96 * 1.96 / (6 + 1.96 * 1.96), 1e-12);
  EXPECT_EQ(bucket_verdict(interval, 0.02), BucketVerdict::kUnresolved);
}

TEST(Shift, TheSameLossEverywhereKeepsAnError) {
  const Doubles control(50, 0.5), candidate(50, 0.25);
  const Shift shift = bucket_shift(summarize_pairs(control, candidate));
  EXPECT_GT(shift.interval(1.96).hi, -0.25);
  EXPECT_EQ(bucket_verdict(shift.interval(1.96), 0.02), BucketVerdict::kMaterialLoss);
}

TEST(Shift, ClusteredBinaryUsesEffectiveCountsAndT) {
  SplitMix64 random(11);
  const RandomPairs p = random_pairs(random, true, 40, 6);
  PairedSummary s = summarize_pairs(p.control, p.candidate, p.documents);
  s.deff = 1.5;
  const Shift shift = bucket_shift(s);
  EXPECT_EQ(shift.df(), 39);
  EXPECT_DOUBLE_EQ(shift.counts().n, 160);
  EXPECT_DOUBLE_EQ(shift.counts().losses, static_cast<double>(s.losses) / 1.5);
  EXPECT_NEAR(shift.bound(critical_z(0.95)), critical_t(0.95, 39), 1e-12);
  EXPECT_DOUBLE_EQ(shift.estimate(), s.diff);
  const Interval expected = tango_interval(shift.counts(), critical_t(0.95, 39));
  EXPECT_NEAR(shift.interval(critical_z(0.95)).lo, expected.lo, 1e-12);
}

TEST(Shift, IntervalAndTestsAgree) {
  SplitMix64 random(12);
  for (int i = 0; i < 500; ++i) {
    const RandomPairs p =
        random_pairs(random, i % 2 == 0, 5 + random.below(60), 1 + random.below(4));
    const Shift shift = bucket_shift(summarize_pairs(p.control, p.candidate, p.documents));
    const double delta = 0.01 + 0.2 * random.uniform();
    const Interval interval = shift.interval(critical_z(0.95));
    const MarginTest test = margin_test(shift, delta);
    EXPECT_EQ(interval.lo > -delta, test.p_ni < 0.025);
    EXPECT_EQ(interval.hi < delta, test.p_equiv_upper < 0.025);
    EXPECT_EQ(interval.hi < -delta, test.p_material_loss < 0.025);
  }
}

TEST(Shift, PoolOfOneBucketIsTheBucket) {
  SplitMix64 random(13);
  const RandomPairs p = random_pairs(random, true, 50, 4);
  const PairedSummary s = summarize_pairs(p.control, p.candidate, p.documents);
  const Interval a = bucket_shift(s).interval(1.96), b = pooled_shift({&s, 1}).interval(1.96);
  EXPECT_NEAR(a.lo, b.lo, 1e-12);
  EXPECT_NEAR(a.hi, b.hi, 1e-12);
}

TEST(Shift, PoolAddsCountsAndKeepsTheEstimate) {
  SplitMix64 random(14);
  std::vector<PairedSummary> buckets;
  double diff = 0;
  for (int b = 0; b < 4; ++b) {
    const RandomPairs p = random_pairs(random, true, 50, 4);
    buckets.push_back(summarize_pairs(p.control, p.candidate, p.documents));
    diff += buckets.back().diff / 4;
  }
  const Shift pooled = pooled_shift(buckets);
  EXPECT_NEAR(pooled.estimate(), diff, 1e-12);
  EXPECT_EQ(pooled.df(), 4 * 49);
  EXPECT_LE(pooled.counts().n, 800);
  const Shift weighted = weighted_shift(buckets, Doubles{1, 1, 1, 1});
  EXPECT_NEAR(weighted.estimate(), diff, 1e-12);
  EXPECT_GT(weighted.df(), 49);
  EXPECT_LT(weighted.df(), 4 * 49 + 1e-6);
  // Both are score-like errors of the same mean: equal to the order of 1/n.
  const Interval a = pooled.interval(1.96), b = weighted.interval(1.96);
  EXPECT_NEAR(a.lo, b.lo, 0.1 * (a.hi - a.lo));
  EXPECT_NEAR(a.hi, b.hi, 0.1 * (a.hi - a.lo));
}

TEST(Shift, WeightedVarianceByHand) {
  PairedSummary binary;
  binary.is_binary = true;
  binary.n = binary.clusters = 400;
  binary.losses = 12;
  binary.gains = 4;
  binary.diff = -0.02;
  EXPECT_NEAR(shift_variance(binary), 16. / 160000 - 0.0004 / 400, 1e-16);
  PairedSummary quiet = binary;
  quiet.losses = quiet.gains = 0;
  quiet.diff = 0;
  EXPECT_NEAR(shift_variance(quiet), 0.5 / 160000, 1e-16);
  const std::vector<PairedSummary> buckets{binary, quiet};
  const Shift shift = weighted_shift(buckets, Doubles{3, 1});
  EXPECT_NEAR(shift.estimate(), -0.015, 1e-15);
  EXPECT_EQ(shift.df(), Shift::kNormal);
  const double se = std::sqrt(.5625 * shift_variance(binary) + .0625 * shift_variance(quiet));
  EXPECT_NEAR(shift.statistic(0), -0.015 / se, 1e-12);
}

TEST(Verdict, EveryPositionOfTheInterval) {
  using enum BucketVerdict;
  struct Case {
    Interval interval;
    BucketVerdict verdict;
    const char* name;
  };
  for (const Case& c : std::vector<Case>{{{-.01, .01}, kEquivalent, "EQUIVALENT"},
                                         {{-.01, .03}, kNonInferior, "NON_INFERIOR"},
                                         {{.03, .05}, kNonInferior, "NON_INFERIOR"},
                                         {{-.015, -.005}, kTolerableShift, "TOLERABLE_SHIFT"},
                                         {{-.05, -.03}, kMaterialLoss, "MATERIAL_LOSS"},
                                         {{-.05, -.01}, kLossUnsized, "LOSS_UNSIZED"},
                                         {{-.02, -.01}, kLossUnsized, "LOSS_UNSIZED"},
                                         {{-.05, .01}, kUnresolved, "UNRESOLVED"},
                                         {{-.05, .05}, kUnresolved, "UNRESOLVED"},
                                         {{-.02, 0}, kUnresolved, "UNRESOLVED"}}) {
    EXPECT_EQ(bucket_verdict(c.interval, 0.02), c.verdict) << c.interval.lo << ' ' << c.interval.hi;
    EXPECT_EQ(name(c.verdict), c.name);
    EXPECT_EQ(is_non_inferior(c.verdict), c.interval.lo > -0.02);
  }
}

}  // namespace
}  // namespace kv
