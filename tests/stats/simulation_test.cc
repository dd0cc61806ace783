// How often the test of non-inferiority passes wrongly when the truth lies exactly at the margin.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "stats/distributions.h"
#include "stats/intervals.h"
#include "stats/shift.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr double kMargin = 0.02, kLoss = 0.035, kGain = 0.015;  // the truth: Delta = -kMargin

/// Chance that n independent pairs pass: the sum over every (losses, gains) that can occur.
double exact_pass_rate(int64_t n, double loss, double gain) {
  const auto reach = [n](double p) {  // ten standard deviations above the mean
    const double mean = static_cast<double>(n) * p;
    return static_cast<int64_t>(mean + 10 * std::sqrt(mean)) + 2;
  };
  double passing = 0;
  for (int64_t b = 0; b < reach(loss); ++b) {
    for (int64_t c = 0; c < reach(gain); ++c) {
      const PairedCounts counts{static_cast<double>(b), static_cast<double>(c),
                                static_cast<double>(n)};
      if (Shift::binary(counts).p_above(-kMargin) > 0.025) continue;
      passing +=
          std::exp(log_binomial_pmf(b, n, loss) + log_binomial_pmf(c, n - b, gain / (1 - loss)));
    }
  }
  return passing;
}

TEST(TangoAtTheMargin, IndependentPairsPassWronglyAtMostIn25OfAThousand) {
  // The error of the score test falls like 1/sqrt(n) with the skewness of the difference, which is
  // why rare gains make it cautious and never careless. References: the same sums in SciPy.
  EXPECT_NEAR(exact_pass_rate(400, 0.03, 0.01), 0.020025244651, 1e-9);
  EXPECT_NEAR(exact_pass_rate(600, 0.035, 0.015), 0.022498650777, 1e-9);
  EXPECT_NEAR(exact_pass_rate(600, 0.07, 0.05), 0.025028546505, 1e-9);
  EXPECT_NEAR(exact_pass_rate(2000, 0.035, 0.015), 0.023978379109, 1e-9);
}

/// -1, 0 or +1 with the probabilities above.
int draw_difference(SplitMix64& random) {
  const double u = random.uniform();
  if (u < kLoss) return -1;
  return u < kLoss + kGain ? 1 : 0;
}

/// A bucket of documents x questions. A question takes its document's common outcome with
/// probability sqrt(icc), its own otherwise: two questions of a document then correlate by icc.
PairedSummary clustered_bucket(SplitMix64& random, int documents, int questions, double icc) {
  std::vector<double> control, candidate;
  std::vector<int64_t> ids;
  const double copy = std::sqrt(icc);
  for (int document = 0; document < documents; ++document) {
    const int common = draw_difference(random);
    for (int q = 0; q < questions; ++q) {
      const int d = random.uniform() < copy ? common : draw_difference(random);
      control.push_back(d <= 0 ? 1 : 0);  // no change counts as right in both arms
      candidate.push_back(d >= 0 ? 1 : 0);
      ids.push_back(document);
    }
  }
  return summarize_pairs(control, candidate, ids);
}

double wrong_passes(bool with_rule, double icc) {
  SplitMix64 random(200);
  const int runs = 4000;
  int passed = 0;
  for (int run = 0; run < runs; ++run) {
    PairedSummary bucket = clustered_bucket(random, 125, 4, icc);
    if (!with_rule) bucket.deff = 1;
    passed += bucket_shift(bucket).interval(critical_z(0.95)).lo > -kMargin;
  }
  return static_cast<double>(passed) / runs;
}

TEST(TangoAtTheMargin, DesignEffectHoldsTheErrorOfDependentQuestions) {
  const double with_rule = wrong_passes(true, 0.1);
  EXPECT_LE(with_rule, 0.04);
  EXPECT_GT(wrong_passes(false, 0.1), with_rule);  // what the rule is for
}

}  // namespace
}  // namespace kv
