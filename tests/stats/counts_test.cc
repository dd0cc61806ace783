// Tests and intervals from counts: properties that hold for every input, tried on seeded random
// ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "stats/distributions.h"
#include "stats/holm.h"
#include "stats/mcnemar.h"
#include "stats/splitmix64.h"
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

}  // namespace
}  // namespace kv
