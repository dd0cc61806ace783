// The method's test vectors TV-1 to TV-5: paired scores and counts. They were computed with other
// programs (SciPy, R); tolerances are the digits they state.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "stats/bootstrap.h"
#include "stats/intervals.h"
#include "stats/mcnemar.h"
#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/permutation.h"
#include "stats/shift.h"
#include "stats/splitmix64.h"
#include "stats/tango.h"
#include "tests/stats/expect_digits.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;

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

}  // namespace
}  // namespace kv
