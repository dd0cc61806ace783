// Properties that hold for every input, tried on seeded random ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "stats/bootstrap.h"
#include "stats/distributions.h"
#include "stats/holm.h"
#include "stats/mcnemar.h"
#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/permutation.h"
#include "stats/representativeness.h"
#include "stats/sequential.h"
#include "stats/shift.h"
#include "stats/splitmix64.h"
#include "stats/survival.h"
#include "stats/tango.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;

/// Whole or fractional counts, none to all of them flips.
PairedCounts random_counts(SplitMix64& random) {
  PairedCounts out;
  out.n = static_cast<double>(1 + random.below(2000));
  const double flips = std::floor(out.n * std::pow(random.uniform(), 4) * 1.05);
  out.losses = std::min(out.n, std::floor(random.uniform() * (flips + 1)));
  out.gains = std::min(out.n - out.losses, std::max(0.0, flips - out.losses));
  if (random.below(2) == 0) {
    const double deff = 1 + 3 * random.uniform();
    out = {out.losses / deff, out.gains / deff, out.n / deff};
  }
  return out;
}

double estimate_of(const PairedCounts& c) { return (c.gains - c.losses) / c.n; }

TEST(Tango, IntervalContainsTheEstimateAndGrowsWithConfidence) {
  SplitMix64 random(1);
  for (int i = 0; i < 3000; ++i) {
    const PairedCounts c = random_counts(random);
    SCOPED_TRACE(testing::Message() << c.losses << ' ' << c.gains << ' ' << c.n);
    Interval last{estimate_of(c), estimate_of(c)};
    for (const double confidence : {0.01, 0.5, 0.8, 0.95, 0.9999}) {
      const Interval now = tango_interval(c, critical_z(confidence));
      EXPECT_LE(now.lo, last.lo);
      EXPECT_GE(now.hi, last.hi);
      EXPECT_GE(now.lo, -1);
      EXPECT_LE(now.hi, 1);
      last = now;
    }
  }
}

TEST(Tango, StatisticFallsAndIsTheBoundAtTheEnds) {
  SplitMix64 random(2);
  for (int i = 0; i < 1000; ++i) {
    const PairedCounts c = random_counts(random);
    SCOPED_TRACE(testing::Message() << c.losses << ' ' << c.gains << ' ' << c.n);
    double last = std::numeric_limits<double>::infinity();
    for (double delta = -0.99; delta < 1; delta += 0.03) {
      const double t = tango_statistic(c, delta);
      EXPECT_LE(t, last) << delta;
      last = t;
    }
    const Interval interval = tango_interval(c, 1.96);
    // An end is known to 1e-13, and T is steepest where its variance is smallest: an end at least
    // 1e-4 away from 0 and 1 has |dT/dD0| < 1e7.
    for (const auto& [end, value] : {std::pair{interval.lo, 1.96}, std::pair{interval.hi, -1.96}}) {
      if (std::abs(end) < 1e-4 || std::abs(end) > 1 - 1e-4) continue;
      EXPECT_NEAR(tango_statistic(c, end), value, 1e-6);
    }
  }
}

TEST(Tango, SwappingTheArmsMirrorsEverything) {
  SplitMix64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const PairedCounts c = random_counts(random), swapped{c.gains, c.losses, c.n};
    const double delta = 1.9 * random.uniform() - 0.95;
    EXPECT_EQ(tango_statistic(c, delta), -tango_statistic(swapped, -delta));
    const Interval a = tango_interval(c, 1.96), b = tango_interval(swapped, 1.96);
    EXPECT_EQ(a.lo, -b.hi);
    EXPECT_EQ(a.hi, -b.lo);
  }
}

/// The likeliest probability of a loss under Delta = delta, by golden section on the likelihood.
double likeliest_loss(const PairedCounts& c, double delta) {
  const auto log_likelihood = [&](double q) {
    const double gain = q + delta, rest = 1 - q - gain;
    const auto term = [](double count, double p) { return count > 0 ? count * std::log(p) : 0.0; };
    return term(c.losses, q) + term(c.gains, gain) + term(c.n - c.losses - c.gains, rest);
  };
  double low = std::max(0.0, -delta), high = (1 - delta) / 2;
  for (int step = 0; step < 200; ++step) {
    const double a = low + 0.382 * (high - low), b = high - 0.382 * (high - low);
    if (log_likelihood(a) < log_likelihood(b)) {
      low = a;
    } else {
      high = b;
    }
  }
  return (low + high) / 2;
}

TEST(Tango, ClosedFormMaximisesTheLikelihood) {
  SplitMix64 random(4);
  for (int i = 0; i < 300; ++i) {
    const PairedCounts c = random_counts(random);
    const double delta = 1.6 * random.uniform() - 0.8;
    // A maximum is found to the square root of the rounding error of the likelihood.
    EXPECT_NEAR(tango_loss_probability(c, delta), likeliest_loss(c, delta), 2e-6)
        << c.losses << ' ' << c.gains << ' ' << c.n << " at " << delta;
  }
}

TEST(Tango, WithoutFlipsTheIntervalIsZSquaredOverNPlusZSquared) {
  for (const double n : {1.0, 7.5, 40.0, 400.0, 1e6}) {
    for (const double z : {0.5, 1.96, 4.0}) {
      const Interval interval = tango_interval({0, 0, n}, z);
      EXPECT_NEAR(interval.hi, z * z / (n + z * z), 1e-12);
      EXPECT_EQ(interval.lo, -interval.hi);
    }
  }
}

TEST(Wilson, ContainsTheEstimateStaysInUnitAndGrowsWithConfidence) {
  SplitMix64 random(5);
  for (int i = 0; i < 5000; ++i) {
    const double n = static_cast<double>(1 + random.below(3000)) / (1 + random.uniform());
    double k = n * random.uniform();
    if (i % 10 == 0) k = 0;
    if (i % 10 == 1) k = n;
    Interval last{k / n, k / n};
    for (const double confidence : {0.01, 0.5, 0.95, 0.9999}) {
      const Interval now = wilson_interval(k, n, critical_z(confidence));
      EXPECT_LE(now.lo, last.lo);
      EXPECT_GE(now.hi, last.hi);
      EXPECT_GE(now.lo, 0);
      EXPECT_LE(now.hi, 1);
      last = now;
    }
    EXPECT_GT(last.hi - last.lo, 0);
  }
}

TEST(Wilson, EndsAreWhereTheScoreTestRejects) {
  for (const double n : {5.0, 60.0, 1000.0}) {
    for (const double share : {0.1, 0.35, 0.9}) {
      const Interval interval = wilson_interval(share * n, n, 1.96);
      for (const double p : {interval.lo, interval.hi}) {
        EXPECT_NEAR(std::abs(share - p) / std::sqrt(p * (1 - p) / n), 1.96, 1e-9);
      }
    }
  }
}

TEST(McNemar, MirrorsMonotoneAndBetweenTheExactTails) {
  SplitMix64 random(6);
  for (int i = 0; i < 2000; ++i) {
    double b = static_cast<double>(random.below(60)), c = static_cast<double>(random.below(60));
    if (i % 2 == 1) b /= 1.7, c /= 1.7;
    if (b + c == 0) continue;
    const McNemar test = mcnemar(b, c), swapped = mcnemar(c, b);
    EXPECT_NEAR(test.midp_loss + swapped.midp_loss, 1, 1e-12) << b << ' ' << c;
    EXPECT_EQ(test.midp_two_sided, swapped.midp_two_sided);
    EXPECT_EQ(test.exact_two_sided, swapped.exact_two_sided);
    EXPECT_LE(test.chi_square_p, test.chi_square_corrected_p);
    if (test.midp_loss > 1 - 1e-12) continue;  // the differences below are lost in rounding
    EXPECT_LT(test.midp_loss, test.exact_loss);
    EXPECT_LT(mcnemar(b + 0.5, c).midp_loss, test.midp_loss);
    EXPECT_GT(mcnemar(b, c + 0.5).midp_loss, test.midp_loss);
  }
}

TEST(McNemar, LargeCountsApproachTheNormalTail) {
  const McNemar test = mcnemar(50500, 49500);
  const double z = 1000 / std::sqrt(100000.0);
  // The mid-p differs from the normal tail by O(1/n) relative to the density.
  EXPECT_NEAR(test.midp_loss, normal_upper(z), 1e-6);
  EXPECT_NEAR(test.chi_square, z * z, 1e-12);
}

TEST(Holm, AdjustedAreMonotoneAtLeastPAndIgnoreTheOrder) {
  SplitMix64 random(7);
  for (int round = 0; round < 500; ++round) {
    Doubles p(random.below(12));
    for (double& v : p) v = random.below(5) == 0 ? 0.25 : std::pow(random.uniform(), 3);
    const Doubles adjusted = holm_adjusted(p);
    for (size_t i = 0; i < p.size(); ++i) {
      EXPECT_GE(adjusted[i], p[i]);
      EXPECT_LE(adjusted[i], std::min(1.0, p[i] * static_cast<double>(p.size())));
      for (size_t j = 0; j < p.size(); ++j) {
        if (p[i] <= p[j]) {
          EXPECT_LE(adjusted[i], adjusted[j]);
        }
      }
    }
    Doubles reversed(p.rbegin(), p.rend());
    Doubles back = holm_adjusted(reversed);
    std::reverse(back.begin(), back.end());
    EXPECT_EQ(back, adjusted);
  }
}

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

TEST(Bootstrap, SameBitsOnEveryNumberOfThreads) {
  SplitMix64 random(15);
  Doubles sums(300), sizes(300);
  for (double& v : sums) v = random.uniform() - 0.5;
  for (double& v : sizes) v = static_cast<double>(1 + random.below(8));
  const std::vector<size_t> strata{100, 1, 150, 49};
  const auto replicates = [&](int threads) {
    return bootstrap_ratio(sums, sizes, strata,
                           {.seed = 9, .replicates = 1001, .threads = threads});
  };
  const Doubles one = replicates(1);
  for (const int threads : {2, 3, 7, 2000}) EXPECT_EQ(replicates(threads), one) << threads;
}

TEST(Bootstrap, DrawsStayInTheirStratum) {
  const std::vector<size_t> strata{5, 3, 90};
  const auto stray = [&](std::span<const uint32_t> drawn) {
    size_t first = 0, position = 0;
    double strays = 0;
    for (const size_t size : strata) {
      for (size_t i = 0; i < size; ++i, ++position) {
        strays += drawn[position] < first || drawn[position] >= first + size;
      }
      first += size;
    }
    return strays;
  };
  const Doubles strays = bootstrap(strata, stray, {.seed = 3, .replicates = 200});
  EXPECT_EQ(strays, Doubles(200, 0.0));
}

TEST(Bootstrap, PassesOnWhatTheStatisticThrows) {
  const std::vector<size_t> strata{5};
  const auto fail = [](std::span<const uint32_t>) -> double { throw std::runtime_error("mine"); };
  for (const int threads : {1, 3}) {
    EXPECT_THROW(bootstrap(strata, fail, {.replicates = 10, .threads = threads}),
                 std::runtime_error);
  }
}

TEST(Bootstrap, SpreadIsTheStandardError) {
  SplitMix64 random(16);
  Doubles values(400);
  for (double& v : values) v = random.uniform();
  const std::vector<size_t> strata{400};
  const BootstrapSummary s = summarize_bootstrap(
      bootstrap_ratio(values, Doubles(400, 1.0), strata, {.seed = 1, .replicates = 4000}), 0.95);
  const MeanEstimate mean = mean_estimate(values);
  // 4000 replicates know their own sd to 1.1 %; five of those.
  EXPECT_NEAR(s.sd, mean.se, 0.06 * mean.se);
  EXPECT_NEAR(s.mean, mean.mean, 5 * mean.se / std::sqrt(4000.0));
}

TEST(Percentiles, AreMonotoneAndHitTheOrderStatistics) {
  SplitMix64 random(17);
  for (size_t n = 1; n < 40; ++n) {
    Doubles values(n);
    for (double& v : values) v = random.uniform();
    Doubles sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < n; ++i) {
      const double q = n == 1 ? 0 : static_cast<double>(i) / static_cast<double>(n - 1);
      EXPECT_NEAR(percentile(values, q), sorted[i], 1e-14);
    }
    EXPECT_EQ(percentile(values, 1), sorted.back());
    EXPECT_LE(percentile(values, 0.3), percentile(values, 0.4));
  }
}

TEST(PermutationTrend, RandomOrderingsAgreeWithTheNormalApproximation) {
  SplitMix64 random(18);
  Doubles x(30), y(30);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i);
    y[i] = random.uniform() - 0.02 * x[i];
  }
  // Under permutation the statistic has mean 0 and variance Sxx Syy / (n - 1), so z = r sqrt(n -
  // 1).
  const double z = correlation(x, y) * std::sqrt(29.0);
  const PermutationTest test = permutation_trend(x, y, 5, 20000);
  EXPECT_EQ(test.total, 20001u);
  EXPECT_NEAR(test.p, normal_cdf(z), 0.01);
  EXPECT_EQ(permutation_trend(x, y, 5, 20000).extreme, test.extreme);
}

TEST(SignFlips, ManyDifferencesAgreeWithTheNormalApproximation) {
  SplitMix64 random(19);
  Doubles d(18);
  double sum = 0, squares = 0;
  for (double& v : d) {
    v = random.uniform() - 0.6;
    sum += v;
    squares += v * v;
  }
  EXPECT_NEAR(sign_flip_test(d).p, normal_cdf(sum / std::sqrt(squares)), 0.01);
  EXPECT_EQ(sign_flip_test(Doubles(5, 0.0)).p, 1);
}

TEST(Sequential, BoundsSpendExactlyTheError) {
  for (const Doubles& fractions :
       {Doubles{0.03, 0.5, 0.505, 0.8}, Doubles{0.005, 0.1, 1}, Doubles{0.25, 0.5, 1}}) {
    const Doubles bounds = look_bounds(fractions, 0.05);
    const Doubles crossed = crossing_probabilities(fractions, bounds);
    for (size_t k = 0; k < fractions.size(); ++k) {
      EXPECT_NEAR(crossed[k], spent_error(fractions[k], 0.05), 1e-9);
      EXPECT_TRUE(std::isfinite(bounds[k]));
      EXPECT_GE(bounds[k], bounds.back());
    }
  }
}

TEST(Sequential, ASecondLookAfterAnUnreachableFirstOneIsAFreshStart) {
  // At 0.5 % of the data nothing can be spent, so the second look has the whole spending of its
  // own.
  const Doubles bounds = look_bounds(Doubles{0.005, 0.5}, 0.05);
  EXPECT_NEAR(bounds[1], -normal_quantile(spent_error(0.5, 0.05) / 2), 1e-6);
}

TEST(Sequential, SimulatedLooksCrossAsOftenAsComputed) {
  const Doubles fractions{0.25, 0.5, 1}, bounds{2.2, 2.1, 2.0};
  const Doubles expected = crossing_probabilities(fractions, bounds);
  SplitMix64 random(20);
  const int runs = 40000;
  Doubles crossed(3);
  for (int run = 0; run < runs; ++run) {
    double score = 0, last = 0;
    bool out = false;
    for (size_t k = 0; k < 3; ++k) {
      const double u = (static_cast<double>(random.next() >> 12) + 0.5) * 0x1p-52;
      score += std::sqrt(fractions[k] - last) * normal_quantile(u);
      last = fractions[k];
      out |= std::abs(score) > bounds[k] * std::sqrt(last);
      crossed[k] += out;
    }
  }
  for (size_t k = 0; k < 3; ++k) {
    const double share = crossed[k] / runs;
    EXPECT_NEAR(share, expected[k], 4 * std::sqrt(expected[k] / runs)) << "look " << k + 1;
  }
}

TEST(Survival, WithoutCensoringItIsTheEmpiricalShare) {
  SplitMix64 random(21);
  std::vector<FirstDivergence> examples;
  for (int i = 0; i < 200; ++i) {
    examples.push_back({static_cast<int64_t>(1 + random.below(30)), true});
  }
  const DivergenceSummary s = summarize_divergence(examples);
  for (int64_t t = 0; t <= 31; ++t) {
    const auto later = std::count_if(examples.begin(), examples.end(),
                                     [t](const FirstDivergence& e) { return e.index > t; });
    EXPECT_NEAR(s.survival_at(t), static_cast<double>(later) / 200, 1e-12);
  }
  EXPECT_EQ(s.exact_match_rate, 0);
}

TEST(Representativeness, ExceedanceIsOneMinusTheShareOfOrderings) {
  // n = 2 calibrated, m = 2 evaluated: of the 6 ways to label ranks, 3 have the top evaluated.
  EXPECT_DOUBLE_EQ(exceedance_p(2, 2, 1), 0.5);
  EXPECT_DOUBLE_EQ(exceedance_p(2, 2, 2), 1. / 6);
  double last = 1;
  for (int64_t k = 1; k <= 50; ++k) {
    const double p = exceedance_p(30, 50, k);
    EXPECT_LT(p, last);
    EXPECT_NEAR(std::log(p), log_choose(50, k) - log_choose(80, k), 1e-10);
    last = p;
  }
}

TEST(Representativeness, KsByHandAndAgainstTheDefinition) {
  EXPECT_DOUBLE_EQ(ks_statistic(Doubles{1, 2, 3, 4}, Doubles{3, 4, 5, 6}), 0.5);
  EXPECT_EQ(ks_statistic(Doubles{1, 2}, Doubles{1, 2}), 0);
  EXPECT_EQ(ks_statistic(Doubles{1, 2}, Doubles{5}), 1);
  EXPECT_NEAR(ks_critical_95(100, 100), 1.358 * std::sqrt(0.02), 1e-15);
  SplitMix64 random(22);
  for (int round = 0; round < 100; ++round) {
    Doubles a(1 + random.below(30)), b(1 + random.below(30));
    for (double& v : a) v = static_cast<double>(random.below(12));
    for (double& v : b) v = static_cast<double>(random.below(12));
    double largest = 0;
    for (double at = -0.5; at < 13; at += 1) {
      const auto share = [at](const Doubles& s) {
        return static_cast<double>(
                   std::count_if(s.begin(), s.end(), [at](double v) { return v <= at; })) /
               static_cast<double>(s.size());
      };
      largest = std::max(largest, std::abs(share(a) - share(b)));
    }
    EXPECT_NEAR(ks_statistic(a, b), largest, 1e-15);
  }
}

TEST(SplitMix64, BelowIsUniformAndUniformIsInUnit) {
  SplitMix64 random(23);
  std::vector<int> hits(7);
  for (int i = 0; i < 70000; ++i) ++hits[random.below(7)];
  for (const int h : hits) EXPECT_NEAR(h, 10000, 5 * std::sqrt(10000.0 * 6 / 7));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 5 * std::sqrt(1. / 12 / 10000));
}

}  // namespace
}  // namespace kv
