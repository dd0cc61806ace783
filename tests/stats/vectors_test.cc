// The published test vectors of the evaluation method, TV-1 to TV-13 as far as they are statistics.
// They were computed with other programs (SciPy, R); tolerances are the digits they state.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "stats/bootstrap.h"
#include "stats/distributions.h"
#include "stats/holm.h"
#include "stats/line_fit.h"
#include "stats/mcnemar.h"
#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/permutation.h"
#include "stats/representativeness.h"
#include "stats/sample_size.h"
#include "stats/sequential.h"
#include "stats/shift.h"
#include "stats/splitmix64.h"
#include "stats/survival.h"
#include "stats/tango.h"
#include "stats/trend.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;

// Half a unit of the tenth decimal, the last one most vectors state.
constexpr double kTenDigits = 0.5e-10 + 1e-15;
#define EXPECT_TENTH(actual, expected) EXPECT_NEAR(actual, expected, kTenDigits)
#define EXPECT_RELATIVE(actual, expected) EXPECT_NEAR(actual, expected, 1e-9 * std::abs(expected))

void expect_interval(const Interval& found, double lo, double hi, double tolerance = kTenDigits) {
  EXPECT_NEAR(found.lo, lo, tolerance);
  EXPECT_NEAR(found.hi, hi, tolerance);
}

// ---- TV-1 --------------------------------------------------------------------------------------

const Doubles kControl{1, 1, 0, 1, 1, 1, .5, 1, 1, 0, 1, 1, .75, 1, 1, 1, .25, 1, 1, 1};
const Doubles kCandidate{1, 1, 0, 0, 1, 1, .5, 1, .75, 0, 1, 1, .25, 1, 1, .5, .25, 1, 1, 1};
const std::vector<int64_t> kClusters{0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 7};

Doubles differences() {
  Doubles out;
  for (size_t i = 0; i < kControl.size(); ++i) out.push_back(kCandidate[i] - kControl[i]);
  return out;
}

TEST(Tv1Paired, MeansAndErrors) {
  const PairedSummary s = summarize_pairs(kControl, kCandidate, kClusters);
  EXPECT_DOUBLE_EQ(s.mean_control, 0.825);
  EXPECT_DOUBLE_EQ(s.mean_candidate, 0.7125);
  EXPECT_DOUBLE_EQ(s.diff, -0.1125);
  EXPECT_RELATIVE(s.sd, 0.2625156636930653);
  EXPECT_RELATIVE(s.se_iid, 0.058700286917616744);
  EXPECT_RELATIVE(s.se_control, 0.07716182584945132);
  EXPECT_RELATIVE(s.se_candidate, 0.08935993156007367);
  EXPECT_RELATIVE(std::hypot(s.se_control, s.se_candidate), 0.11806415517354157);
  EXPECT_RELATIVE(s.se_cr0, 0.0509748712602592);
  EXPECT_RELATIVE(s.se_cr1, 0.054494429597371295);
  EXPECT_EQ(s.clusters, 8u);
  EXPECT_EQ(s.deff, 1);  // the clusters happen to be less spread than single examples
  EXPECT_FALSE(s.is_binary);
  EXPECT_EQ(s.losses, 4u);
  EXPECT_EQ(s.gains, 0u);
}

TEST(Tv1Paired, CorrelationIdentityAndOffDiagonalForm) {
  const PairedSummary s = summarize_pairs(kControl, kCandidate);
  const double r = correlation(kControl, kCandidate);
  EXPECT_RELATIVE(r, 0.7609248733189687);
  EXPECT_RELATIVE(s.se_iid * s.se_iid, s.se_control * s.se_control +
                                           s.se_candidate * s.se_candidate -
                                           2 * s.se_control * s.se_candidate * r);
  double off_diagonal = 0;
  const Doubles d = differences();
  for (size_t i = 0; i < d.size(); ++i) {
    for (size_t j = 0; j < d.size(); ++j) {
      if (i != j && kClusters[i] == kClusters[j]) off_diagonal += (d[i] - s.diff) * (d[j] - s.diff);
    }
  }
  EXPECT_RELATIVE(std::sqrt(s.se_iid * s.se_iid + off_diagonal / 400), 0.0526376641219054);
}

TEST(Tv1Paired, Intervals) {
  const PairedSummary s = summarize_pairs(kControl, kCandidate, kClusters);
  expect_interval(symmetric_interval(s.diff, s.se_iid, critical_z(0.95)), -0.2275504482,
                  0.0025504482);
  expect_interval(symmetric_interval(s.diff, s.se_iid, critical_t(0.95, 19)), -0.2353611125,
                  0.0103611125);
  const Shift shift = bucket_shift(s);
  expect_interval(shift.interval(critical_z(0.95)), -0.2413588498, 0.0163588498);
  expect_interval(shift.interval(critical_z(0.90)), -0.2157439804, -0.0092560196);
}

TEST(Tv1Paired, OneSidedPAndTwoOneSidedTests) {
  const Shift shift = bucket_shift(summarize_pairs(kControl, kCandidate));
  EXPECT_EQ(shift.df(), 19);
  EXPECT_TENTH(shift.p_below(0), 0.0352330639);
  const MarginTest test = margin_test(shift, 0.2);
  EXPECT_TENTH(test.z_ni, 1.4906230377);
  EXPECT_NEAR(test.p_ni, 0.0762378782, 1e-10);
  EXPECT_TENTH(test.z_equiv_upper, -5.3236537061);
  EXPECT_NEAR(test.p_equiv_upper, 1.93922e-5, 0.5e-10);
  EXPECT_EQ(bucket_verdict(shift.interval(critical_z(0.90)), 0.2), BucketVerdict::kLossUnsized);
}

TEST(Tv1Paired, SignFlips) {
  const PermutationTest test = sign_flip_test(differences());
  EXPECT_EQ(test.extreme, 1u);
  EXPECT_EQ(test.total, 16u);
  EXPECT_EQ(test.p, 0.0625);
}

TEST(Tv1Paired, Recovery) {
  const Recovery recovery = recovery_ratio(kControl, kCandidate);
  EXPECT_TENTH(recovery.ratio, 0.8636363636);
  EXPECT_TENTH(recovery.log_se, 0.0813981221);
  expect_interval(recovery.interval(critical_z(0.95)), 0.7362828979, 1.0130179184);
}

// ---- TV-2 --------------------------------------------------------------------------------------

TEST(Tv2Bootstrap, SplitMix64) {
  static_assert(SplitMix64(0).next() == 0xE220A8397B1DCDAF);
  SplitMix64 a(1234567), b(42), c(42);
  for (const uint64_t expected :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u}) {
    EXPECT_EQ(a.next(), expected);
  }
  uint64_t replicate = 0;
  for (const uint64_t expected :
       {13679457532755275413u, 2949826092126892291u, 5139283748462763858u, 6349198060258255764u}) {
    EXPECT_EQ(b.next(), expected);
    EXPECT_EQ(SplitMix64::replicate_seed(42, replicate++), expected);
  }
  for (const uint64_t expected : {14, 3, 5, 6, 0, 17, 4, 16, 6, 12}) {
    EXPECT_EQ(c.below(20), expected);
  }
}

TEST(Tv2Bootstrap, Examples) {
  const Doubles ones(20, 1.0);
  const std::array<size_t, 1> strata{20};
  const Doubles stats = bootstrap_ratio(differences(), ones, strata, {.seed = 42});
  const Doubles first{-0.1625, -0.1, -0.1875, -0.175, -0.125};
  EXPECT_EQ(Doubles(stats.begin(), stats.begin() + 5), first);
  const BootstrapSummary s = summarize_bootstrap(stats, 0.95);
  EXPECT_NEAR(s.mean, -0.11143, 0.5e-5);
  EXPECT_TENTH(s.sd, 0.0563267576);
  expect_interval(s.interval, -0.2375, -0.0246875);
  expect_interval(summarize_bootstrap(stats, 0.90).interval, -0.2125, -0.025);
  EXPECT_TENTH(s.p_loss, 0.0105989401);
}

TEST(Tv2Bootstrap, Clusters) {
  Doubles sums(8), sizes(8);
  const Doubles d = differences();
  for (size_t i = 0; i < d.size(); ++i) {
    sums[static_cast<size_t>(kClusters[i])] += d[i];
    sizes[static_cast<size_t>(kClusters[i])] += 1;
  }
  const std::array<size_t, 1> strata{8};
  const Doubles stats = bootstrap_ratio(sums, sizes, strata, {.seed = 42});
  const Doubles first{-0.10227273, -0.075, -0.1125, -0.11904762, -0.09210526};
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(stats[i], first[i], 0.5e-8);
  expect_interval(summarize_bootstrap(stats, 0.95).interval, -0.22368421, -0.025, 0.5e-8);
  expect_interval(summarize_bootstrap(stats, 0.90).interval, -0.20833333, -0.03571429, 0.5e-8);
}

// ---- TV-3 --------------------------------------------------------------------------------------

TEST(Tv3Wilson, Intervals) {
  const double z = critical_z(0.95);
  expect_interval(wilson_interval(0, 20, z), 0, 0.1611251581);
  expect_interval(wilson_interval(8, 10, z), 0.4901624715, 0.9433178485);
  expect_interval(wilson_interval(45, 50, z), 0.7863976856, 0.9565242351);
  expect_interval(wilson_interval(81, 263, z), 0.2552885199, 0.3662095770);
  expect_interval(wilson_interval(392, 400, z), 0.9610365842, 0.9898316132);
  expect_interval(wilson_interval(400, 400, z), 0.9904877057, 1);
}

// ---- TV-4 --------------------------------------------------------------------------------------

TEST(Tv4McNemar, TwentyFiveLossesElevenGains) {
  const McNemar test = mcnemar(25, 11);
  EXPECT_TENTH(test.exact_two_sided, 0.0288167197);
  EXPECT_TENTH(test.midp_two_sided, 0.0200738519);
  EXPECT_TENTH(test.exact_loss, 0.0144083598);
  EXPECT_TENTH(test.midp_loss, 0.0100369260);
  EXPECT_NEAR(test.chi_square, 5.4444444, 0.5e-7);
  EXPECT_TENTH(test.chi_square_p, 0.0196306573);
  EXPECT_TENTH(test.chi_square_corrected_p, 0.0302602800);
}

TEST(Tv4McNemar, SmallCounts) {
  EXPECT_TENTH(mcnemar(18, 6).midp_loss, 0.0073166490);
  EXPECT_TENTH(mcnemar(10, 2).exact_two_sided, 0.0385742188);
  EXPECT_TENTH(mcnemar(10, 2).midp_loss, 0.0112304688);
  EXPECT_TENTH(mcnemar(3, 0).exact_two_sided, 0.25);
  EXPECT_TENTH(mcnemar(3, 0).midp_loss, 0.0625);
  EXPECT_TENTH(mcnemar(6, 6).midp_loss, 0.5);
  EXPECT_TENTH(mcnemar(6, 6).midp_two_sided, 1);
}

TEST(Tv4McNemar, NoFlipsGiveOne) {
  const McNemar test = mcnemar(0, 0);
  for (const double p : {test.exact_loss, test.exact_two_sided, test.midp_loss, test.midp_two_sided,
                         test.chi_square_p, test.chi_square_corrected_p}) {
    EXPECT_EQ(p, 1);
  }
}

// ---- TV-5 --------------------------------------------------------------------------------------

struct TangoCase {
  PairedCounts counts;
  Interval at_95, at_90;
};

TEST(Tv5Tango, Intervals) {
  const std::vector<TangoCase> cases{
      {{25, 11, 500}, {-0.0533894806, -0.0047218985}, {-0.0489596243, -0.0085791846}},
      {{18, 6, 400}, {-0.0569213890, -0.0065114087}, {-0.0520758182, -0.0104550697}},
      {{5, 5, 400}, {-0.0180562734, 0.0180562734}, {-0.0145591584, 0.0145591584}},
      {{0, 0, 400}, {-0.0095122943, 0.0095122943}, {-0.0067184162, 0.0067184162}},
      {{3, 0, 400}, {-0.0218157207, 0.0020836365}, {-0.0186164125, -0.0007311957}},
      {{24, 16, 1000}, {-0.0212111936, 0.0045992551}, {-0.0189255906, 0.0024817861}},
      {{0, 1, 44}, {-0.0593932311, 0.1180770970}, {-0.0365169384, 0.0956624264}}};
  for (const TangoCase& c : cases) {
    SCOPED_TRACE(testing::Message() << c.counts.losses << ", " << c.counts.gains);
    expect_interval(tango_interval(c.counts, critical_z(0.95)), c.at_95.lo, c.at_95.hi);
    expect_interval(tango_interval(c.counts, critical_z(0.90)), c.at_90.lo, c.at_90.hi);
  }
}

TEST(Tv5Tango, NonInferiority) {
  struct Case {
    PairedCounts counts;
    double delta, z, p;
  };
  const std::vector<Case> cases{{{25, 11, 500}, 0.05, 1.7198854712, 0.0427266310},
                                {{18, 6, 400}, 0.02, -0.8433071170, 0.8004716482},
                                {{5, 5, 400}, 0.02, 2.1238175426, 0.0168427018},
                                {{0, 0, 400}, 0.02, 2.8571428571, 0.0021373670},
                                {{0, 0, 100}, 0.02, 1.4285714286, 0.0765637255},
                                {{24, 16, 1000}, 0.02, 1.7943637787, 0.0363775622}};
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.counts.losses << ", " << c.counts.gains);
    const MarginTest test = margin_test(Shift::binary(c.counts), c.delta);
    EXPECT_TENTH(test.z_ni, c.z);
    EXPECT_NEAR(test.p_ni, c.p, 1e-10);
    EXPECT_NEAR(test.p_material_loss, 1 - c.p, 1e-10);
  }
}

TEST(Tv5Tango, LossProbabilityAndMcNemarsZ) {
  EXPECT_TENTH(tango_loss_probability({25, 11, 500}, -0.05), 0.0671559341);
  EXPECT_DOUBLE_EQ(tango_statistic({25, 11, 500}, 0), -14 / 6.0);
  EXPECT_EQ(tango_statistic({0, 0, 500}, 0), 0);
}

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
