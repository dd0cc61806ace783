// The method's test vectors TV-6 to TV-13 as far as they are statistics: families of tests, curves,
// looks, sample sizes. They were computed with other programs (SciPy, R).

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "stats/holm.h"
#include "stats/line_fit.h"
#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/permutation.h"
#include "stats/representativeness.h"
#include "stats/sample_size.h"
#include "stats/sequential.h"
#include "stats/splitmix64.h"
#include "stats/survival.h"
#include "stats/trend.h"
#include "tests/stats/expect_digits.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;

// ---- TV-6 --------------------------------------------------------------------------------------

TEST(Tv6Holm, AdjustedInTheOrderGiven) {
  const Doubles adjusted = holm_adjusted(Doubles{0.012, 0.20, 0.004, 0.035, 0.6});
  const Doubles expected{0.048, 0.40, 0.020, 0.105, 0.6};
  ASSERT_EQ(adjusted.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_DOUBLE_EQ(adjusted[i], expected[i]);
}

// ---- TV-7 --------------------------------------------------------------------------------------

TEST(Tv7Trend, SlopeAndHeterogeneity) {
  const Doubles x{2, 3, 4, 5, 6}, y{-.001, -.004, -.006, -.013, -.019};
  Doubles variances;
  for (const double se : {.004, .004, .005, .006, .008}) variances.push_back(se * se);
  const WeightedTrend trend = weighted_trend(x, y, variances);
  EXPECT_TENTH(trend.slope, -0.0040981528);
  EXPECT_TENTH(trend.se, 0.0017579617);
  EXPECT_TENTH(trend.z, -2.3311957386);
  EXPECT_TENTH(trend.p_loss, 0.0098715204);
  const Heterogeneity h = heterogeneity(y, variances);
  EXPECT_TENTH(h.pooled, -0.0058083972);
  EXPECT_TENTH(h.se, 0.0021905252);
  EXPECT_TENTH(h.z, -2.6516002978);
  // The method's table says 0.0040055656; Phi of its own z is this (mpmath, 40 digits).
  EXPECT_NEAR(h.p_loss, 0.004005565777, 0.5e-12);
  EXPECT_TENTH(h.q, 5.8065853049);
  EXPECT_TENTH(h.q_p, 0.2140657248);
  EXPECT_TENTH(h.i_squared, 0.3111269722);
}

// ---- TV-8 --------------------------------------------------------------------------------------

void expect_bounds(const Doubles& fractions, double alpha, const Doubles& expected) {
  const Doubles bounds = look_bounds(fractions, alpha);
  ASSERT_EQ(bounds.size(), expected.size());
  for (size_t k = 0; k < bounds.size(); ++k) {
    EXPECT_NEAR(bounds[k], expected[k], 0.5e-4 + 1e-6) << "look " << k + 1 << " alpha " << alpha;
  }
}

TEST(Tv8Looks, BoundsOfTheTable) {
  expect_bounds({1}, 0.05, {1.9600});
  expect_bounds({1}, 0.10, {1.6449});
  expect_bounds({1 / 2., 1}, 0.05, {2.9626, 1.9686});
  expect_bounds({1 / 2., 1}, 0.10, {2.5380, 1.6621});
  expect_bounds({1 / 3., 2 / 3., 1}, 0.05, {3.7103, 2.5114, 1.9930});
  expect_bounds({1 / 3., 2 / 3., 1}, 0.10, {3.2001, 2.1408, 1.6948});
  expect_bounds({1 / 4., 1 / 2., 1}, 0.05, {4.3326, 2.9631, 1.9686});
  expect_bounds({1 / 4., 1 / 2., 1}, 0.10, {3.7496, 2.5399, 1.6622});
  expect_bounds({1 / 4., 1 / 2., 3 / 4., 1}, 0.05, {4.3326, 2.9631, 2.3590, 2.0141});
  expect_bounds({1 / 4., 1 / 2., 3 / 4., 1}, 0.10, {3.7496, 2.5399, 2.0161, 1.7202});
  expect_bounds({.2, .4, .6, .8, 1}, 0.05, {4.8769, 3.3570, 2.6803, 2.2898, 2.0310});
  expect_bounds({.2, .4, .6, .8, 1}, 0.10, {4.2292, 2.8881, 2.2981, 1.9618, 1.7397});
}

TEST(Tv8Looks, NominalLevelsOfTheDefaultPlan) {
  const Doubles bounds = look_bounds(Doubles{.25, .5, 1}, 0.10);
  EXPECT_NEAR(nominal_level(bounds[0]), 8.86e-5, 0.5e-7);
  EXPECT_NEAR(nominal_level(bounds[1]), 0.00554, 0.5e-5);
  EXPECT_NEAR(nominal_level(bounds[2]), 0.04824, 0.5e-5);
}

/// The two-sided error at the last look of bounds constant * shape(fraction), equally spaced looks.
double error_of(size_t looks, double constant, bool is_pocock) {
  Doubles fractions, bounds;
  for (size_t k = 1; k <= looks; ++k) {
    fractions.push_back(static_cast<double>(k) / static_cast<double>(looks));
    bounds.push_back(is_pocock ? constant : constant / std::sqrt(fractions.back()));
  }
  return crossing_probabilities(fractions, bounds).back();
}

TEST(Tv8Looks, IntegratorGivesOBrienFlemingsAndPococksConstants) {
  const Doubles obrien_fleming{1.9774, 2.0040, 2.0243, 2.0401};
  const Doubles pocock{2.1783, 2.2895, 2.3613, 2.4132};
  for (size_t looks = 2; looks <= 5; ++looks) {
    for (const bool is_pocock : {false, true}) {
      // The constant that spends exactly 0.05 lies within the last digit stated.
      const double constant = (is_pocock ? pocock : obrien_fleming)[looks - 2];
      EXPECT_GT(error_of(looks, constant - 0.51e-4, is_pocock), 0.05) << looks;
      EXPECT_LT(error_of(looks, constant + 0.51e-4, is_pocock), 0.05) << looks;
    }
  }
}

// ---- TV-9 --------------------------------------------------------------------------------------

struct LengthCurve {
  Doubles control, candidate;
  double auc_control, auc_candidate;  // 0: not published
  size_t negative, buckets;
  double sign_p;
  uint64_t extreme, orderings;
  ShiftType type;
};

TEST(Tv9Curves, PublishedStudies) {
  using enum ShiftType;
  const std::vector<LengthCurve> cases{{{95.4, 77.8, 69.2, 57.1, 59.5, 46.0},
                                        {95.0, 74.8, 67.2, 55.5, 58.2, 42.7},
                                        57.9548,
                                        55.9452,
                                        6,
                                        6,
                                        0.015625,
                                        140,
                                        720,
                                        kUniform},
                                       {{50.2, 53.4, 55.3, 43.6, 49.3, 37.1},
                                        {50.6, 53.6, 55.9, 41.7, 46.7, 31.7},
                                        45.8419,
                                        43.1484,
                                        3,
                                        6,
                                        0.65625,
                                        5,
                                        720,
                                        kLengthGrowing},
                                       {{50.6, 53.0, 56.6, 43.9, 48.5, 37.7},
                                        {50.9, 52.3, 55.3, 41.3, 45.4, 31.4},
                                        0,
                                        0,
                                        5,
                                        6,
                                        0.109375,
                                        1,
                                        720,
                                        kLengthGrowing},
                                       {{79.7, 60.0, 54.4, 37.7, 15.9},
                                        {76.0, 58.1, 55.0, 37.4, 14.6},
                                        38.8567,
                                        38.1967,
                                        4,
                                        5,
                                        0.1875,
                                        106,
                                        120,
                                        kNone}};
  for (const LengthCurve& c : cases) {
    SCOPED_TRACE(testing::Message() << "control starts at " << c.control[0]);
    Doubles lengths, x, diff;
    for (size_t b = 0; b < c.control.size(); ++b) {
      x.push_back(static_cast<double>(b + 3));  // log2 of thousands of tokens
      lengths.push_back(std::exp2(x.back()));
      diff.push_back(c.candidate[b] - c.control[b]);
    }
    if (c.auc_control > 0) {
      EXPECT_NEAR(length_curve_auc(lengths, c.control), c.auc_control, 0.5e-4);
      EXPECT_NEAR(length_curve_auc(lengths, c.candidate), c.auc_candidate, 0.5e-4);
    }
    const SignTest sign = sign_test(diff);
    EXPECT_EQ(sign.negative, c.negative);
    EXPECT_EQ(sign.nonzero, c.buckets);
    EXPECT_DOUBLE_EQ(sign.p_loss, c.sign_p);
    const PermutationTest trend = permutation_trend(x, diff);
    EXPECT_EQ(trend.extreme, c.extreme);
    EXPECT_EQ(trend.total, c.orderings);
    EXPECT_EQ(shift_type_of_means(x, diff, 0.05), c.type);
  }
}

// ---- TV-10 -------------------------------------------------------------------------------------

TEST(Tv10Tokens, PerplexityRatioWithNaiveAndClusteredError) {
  const Doubles control{2.31, .12, 1.05, 3.40, .77, .03, 1.90, 2.66, .45, .88, 1.21, .19};
  const Doubles change{.02, -.01, .05, .10, -.03, 0, .01, .04, .02, -.02, .03, .01};
  std::vector<int64_t> sequences;
  Doubles candidate = control;
  for (size_t i = 0; i < change.size(); ++i) {
    candidate[i] += change[i];
    sequences.push_back(static_cast<int64_t>(i / 4));
  }
  const PairedSummary s = summarize_pairs(control, candidate, sequences);
  EXPECT_TENTH(s.diff, 0.0183333333);
  EXPECT_TENTH(s.se_iid, 0.0100629333);
  EXPECT_TENTH(std::exp(s.diff), 1.0185024206);
  EXPECT_TENTH(s.se_cr1, 0.0109290642);
}

TEST(Tv10Tokens, Percentiles) {
  const Doubles values{.001, .004, .002, .05, .0005, .011, .003, .2, .0001, .007};
  const Doubles qs{.01, .05, .5, .9, .95, .99, .999};
  const Doubles expected{.000136, .00028, .0035, .065, .1325, .1865, .19865};
  const Doubles found = percentiles(values, qs);
  for (size_t i = 0; i < qs.size(); ++i) {
    EXPECT_RELATIVE(found[i], expected[i]);
    EXPECT_EQ(percentile(values, qs[i]), found[i]);
  }
}

TEST(Tv10Tokens, GreedyDivergence) {
  const std::vector<FirstDivergence> examples{{5, true}, {12, true},  {20, false}, {20, false},
                                              {3, true}, {20, false}, {17, true},  {20, false}};
  const DivergenceSummary s = summarize_divergence(examples);
  EXPECT_EQ(s.survival_at(2), 1);
  EXPECT_DOUBLE_EQ(s.survival_at(3), .875);
  EXPECT_DOUBLE_EQ(s.survival_at(5), .75);
  EXPECT_DOUBLE_EQ(s.survival_at(12), .625);
  EXPECT_DOUBLE_EQ(s.survival_at(17), .5);
  EXPECT_DOUBLE_EQ(s.survival_at(20), .5);
  EXPECT_DOUBLE_EQ(s.hazard, 4.0 / 117);
  EXPECT_EQ(s.exact_match_rate, 0.5);
}

// ---- TV-13 and the tables of sample sizes ------------------------------------------------------

TEST(Tv13Other, BreakEven) {
  EXPECT_NEAR(break_even({4.37e-5, 6.44}, {2.37e-5, 6.58}), 7000, 1e-6);
  EXPECT_NEAR(break_even({1.80e-5, 3.93}, {9.72e-6, 3.96}), 3623.19, 0.5e-2);
  EXPECT_NEAR(break_even({3.56e-6, 3.15}, {2.06e-6, 3.17}), 13333.3, 0.05);
  EXPECT_TRUE(std::isinf(break_even({2e-5, 1}, {2e-5, 0.5})));
}

TEST(Tv13Other, LeastSquares) {
  const Doubles length{1024, 4096, 16384, 65536};
  const LineFit bf16 = fit_line(length, Doubles{6.49, 6.61, 7.17, 9.30});
  const LineFit fp8 = fit_line(length, Doubles{6.60, 6.68, 6.97, 8.13});
  EXPECT_NEAR(bf16.slope, 4.3626651e-5, 0.5e-12);
  EXPECT_NEAR(bf16.intercept, 6.4431841, 0.5e-7);
  EXPECT_NEAR(bf16.slope_se, 2.3463e-7, 0.5e-11);
  EXPECT_NEAR(fp8.slope, 2.3658134e-5, 0.5e-12);
  EXPECT_NEAR(fp8.intercept, 6.5801990, 0.5e-7);
  EXPECT_NEAR(fp8.slope_se, 7.8581e-8, 0.5e-12);
  EXPECT_NEAR(break_even(bf16, fp8), 6861.5474, 0.5e-4);
  EXPECT_NEAR(fp8.slope / bf16.slope, 0.5422863, 0.5e-7);
}

TEST(Tv13Other, PooledGaps) {
  const Doubles gaps{10, 10, 10, 10, 50, 20, 20};
  EXPECT_NEAR(mean_estimate(gaps).mean, 18.5714286, 0.5e-7);
  EXPECT_EQ(percentile(gaps, 0.5), 10);
  EXPECT_NEAR(percentile(gaps, 0.99), 48.2, 1e-12);
}

TEST(Tv13Other, Exceedance) {
  EXPECT_EQ(exceedance_p(512, 400, 0), 1);
  EXPECT_TENTH(exceedance_p(512, 400, 1), 0.4385964912);
  EXPECT_TENTH(exceedance_p(512, 400, 2), 0.1920965971);
  EXPECT_TENTH(exceedance_p(512, 400, 3), 0.0840158744);
  EXPECT_TENTH(exceedance_p(512, 400, 5), 0.0160028492);
  EXPECT_TENTH(exceedance_p(512, 400, 8), 0.0013161310);
}

TEST(Tv13Other, TotalVariation) {
  EXPECT_DOUBLE_EQ(total_variation(Doubles{400, 400, 400, 400}, Doubles{300, 150, 50, 12}),
                   0.37890625);
}

TEST(Tv13Other, SampleSizes) {
  EXPECT_NEAR(detection_n(1. / 9, 0.03, 0.025, 0.8), 968.997, 0.5e-3);
  EXPECT_NEAR(detectable_difference(1. / 9 + 2. / 6, 198, 0.025, 0.8), 0.1327333, 0.5e-7);
  EXPECT_NEAR(detectable_difference(1. / 9 + 2. / 60, 198, 0.025, 0.8), 0.0756696, 0.5e-7);
  EXPECT_EQ(std::ceil(equivalence_n(0.0625, 0.02, 0.05, 0.8)), 1339);
  EXPECT_EQ(std::ceil(zero_flip_n(0.01, 0.025)), 381);
  EXPECT_EQ(std::ceil(zero_flip_n(0.02, 0.025)), 189);
  EXPECT_EQ(std::ceil(zero_flip_n(0.03, 0.025)), 125);
}

TEST(SampleSize, NonInferiorityTable) {
  struct Row {
    double discordance;
    std::array<double, 4> n;
    double joint;
  };
  const std::vector<Row> rows{{0.005, {526, 132, 59, 22}, 191},
                              {0.01, {1051, 263, 117, 43}, 381},
                              {0.02, {2102, 526, 234, 85}, 762},
                              {0.05, {5254, 1314, 584, 211}, 1905},
                              {0.10, {10508, 2627, 1168, 421}, 3809}};
  const std::array<double, 4> deltas{0.01, 0.02, 0.03, 0.05};
  for (const Row& row : rows) {
    for (size_t i = 0; i < deltas.size(); ++i) {
      EXPECT_EQ(std::ceil(non_inferiority_n(row.discordance, deltas[i], 0, 0.025, 0.9)), row.n[i]);
    }
    const double joint = power_per_bucket(0.9, 4);
    EXPECT_EQ(std::ceil(non_inferiority_n(row.discordance, 0.02, 0, 0.025, joint)), row.joint);
  }
}

TEST(SampleSize, PowerIsTheInverseOfN) {
  for (const double power : {0.5, 0.8, 0.9, 0.99}) {
    for (const double true_diff : {-0.01, 0.0, 0.005}) {
      const double n = non_inferiority_n(0.03, 0.02, true_diff, 0.025, power);
      EXPECT_NEAR(non_inferiority_power(n, 0.03, 0.02, true_diff, 0.025), power, 1e-12);
    }
  }
}

TEST(Tv13Other, Fnv1a64) { static_assert(fnv1a64("niah_single") == 0x713d17efbe5e200a); }

}  // namespace
}  // namespace kv
