// Resampling, looks and survival against simulation, the normal limit or the definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "stats/bootstrap.h"
#include "stats/distributions.h"
#include "stats/moments.h"
#include "stats/permutation.h"
#include "stats/representativeness.h"
#include "stats/sequential.h"
#include "stats/splitmix64.h"
#include "stats/survival.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;

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
