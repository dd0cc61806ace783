#include "evaluate/logit_metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "kvscale/error.h"
#include "numeric/simd.h"

namespace kv {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The definitions, in extended precision and without any rearrangement.
struct Reference {
  std::vector<long double> log_p, log_q;

  static std::vector<long double> log_softmax(const std::vector<float>& z) {
    const long double largest = *std::max_element(z.begin(), z.end());
    long double sum = 0;
    for (const float x : z) sum += std::exp(static_cast<long double>(x) - largest);
    std::vector<long double> out;
    for (const float x : z) {
      out.push_back(static_cast<long double>(x) - largest - std::log(sum));
    }
    return out;
  }

  Reference(const std::vector<float>& control, const std::vector<float>& candidate)
      : log_p(log_softmax(control)), log_q(log_softmax(candidate)) {}

  double kld() const {
    long double sum = 0;
    for (size_t i = 0; i < log_p.size(); ++i) sum += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
    return static_cast<double>(sum);
  }
  static double product(const std::vector<long double>& a, const std::vector<long double>& b) {
    long double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += std::exp(a[i] + b[i]);
    return static_cast<double>(sum);
  }
};

std::vector<float> random_row(std::mt19937_64& random, size_t vocab, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(vocab);
  for (float& x : row) x = normal(random);
  return row;
}

std::vector<float> disturbed(std::mt19937_64& random, std::vector<float> row, float noise) {
  std::normal_distribution<float> normal(0, noise);
  for (float& x : row) x += normal(random);
  return row;
}

RowMetrics compared(const std::vector<float>& control, const std::vector<float>& candidate,
                    int32_t token) {
  RowMetrics out;
  compare_rows(control.data(), candidate.data(), static_cast<int64_t>(control.size()), token, out);
  return out;
}

/// Runs the body once under every SIMD target of this machine.
template <class Body>
void on_every_target(Body body) {
  for (const std::string& target : simd_targets()) {
    SCOPED_TRACE(target);
    force_simd_target(target);
    body();
  }
  force_simd_target("");
}

// Test vector "logits" of the method (made with SciPy): 12 digits.
TEST(LogitMetrics, PublishedVector) {
  const std::vector<float> control = {2.0f, 1.0f, 0.1f, -1.0f, 0.5f};
  const std::vector<float> candidate = {1.9f, 1.15f, 0.05f, -1.2f, 0.55f};
  const RowMetrics row = compared(control, candidate, 1);
  // The vector was computed with decimal logits; F32 holds them to 6e-8.
  EXPECT_NEAR(row.kld, 0.005655713545, 1e-7);
  EXPECT_NEAR(compared(candidate, control, 1).kld, 0.005792196583, 1e-7);
  EXPECT_NEAR(row.nll_ctrl, 1.582419671050, 1e-7);
  EXPECT_NEAR(row.nll_cand, 1.409535163910, 1e-7);
  EXPECT_NEAR(row.dp, 0.038779487434, 1e-7);
  EXPECT_TRUE(row.same_top);
  EXPECT_NEAR(row.same_sampled, 0.363155000814, 1e-7);
  EXPECT_NEAR(row.self_sampled, 0.377478288431, 1e-7);
  EXPECT_NEAR(row.top2_margin, 1.0, 1e-7);
}

void expect_agreement(const std::vector<float>& control, const std::vector<float>& candidate,
                      int32_t token) {
  const Reference reference(control, candidate);
  const double same = Reference::product(reference.log_p, reference.log_q);
  const double self = Reference::product(reference.log_p, reference.log_p);
  const auto top = std::max_element(candidate.begin(), candidate.end()) - candidate.begin();
  const auto top_ctrl = std::max_element(control.begin(), control.end()) - control.begin();
  on_every_target([&] {
    const RowMetrics row = compared(control, candidate, token);
    // The header's bound.
    EXPECT_NEAR(row.kld, reference.kld(), 2e-9);
    EXPECT_NEAR(row.nll_ctrl, -static_cast<double>(reference.log_p[token]), 2e-9);
    EXPECT_NEAR(row.nll_cand, -static_cast<double>(reference.log_q[token]), 2e-9);
    EXPECT_NEAR(row.same_sampled, same, 1e-12);
    EXPECT_NEAR(row.self_sampled, self, 1e-12);
    EXPECT_EQ(row.top, top);
    EXPECT_EQ(row.same_top, top == top_ctrl);
  });
}

TEST(LogitMetrics, AgreesWithExtendedPrecisionOnEveryTarget) {
  std::mt19937_64 random(7);
  for (const size_t vocab : {1u, 2u, 3u, 15u, 16u, 17u, 33u, 1024u, 151936u}) {
    for (const float spread : {0.01f, 3.0f, 20.0f}) {
      SCOPED_TRACE(vocab);
      const auto control = random_row(random, vocab, spread);
      const auto candidate = disturbed(random, control, 0.02f * spread + 0.01f);
      expect_agreement(control, candidate, static_cast<int32_t>(random() % vocab));
    }
  }
}

TEST(LogitMetrics, EqualRowsDivergeByExactlyNothing) {
  on_every_target([] {
    std::mt19937_64 random(8);
    const auto row = random_row(random, 5003, 5);
    const RowMetrics metrics = compared(row, row, 17);
    EXPECT_EQ(metrics.kld, 0);
    EXPECT_EQ(metrics.dp, 0);
    EXPECT_EQ(metrics.nll_ctrl, metrics.nll_cand);
    EXPECT_EQ(metrics.same_sampled, metrics.self_sampled);
    EXPECT_TRUE(metrics.same_top);
  });
}

TEST(LogitMetrics, ShiftedRowsDivergeByNothing) {
  std::vector<float> control(1000), candidate(1000);
  for (size_t i = 0; i < control.size(); ++i) {
    control[i] = static_cast<float>(i % 37) * 0.25f;
    candidate[i] = control[i] + 512;  // exact in F32
  }
  const RowMetrics row = compared(control, candidate, 3);
  EXPECT_NEAR(row.kld, 0, 1e-12);
  EXPECT_NEAR(row.nll_ctrl, row.nll_cand, 1e-12);
}

TEST(LogitMetrics, LowestIndexWinsTies) {
  on_every_target([] {
    std::vector<float> control(100, -1.0f), candidate(100, -1.0f);
    control[41] = control[77] = 2;
    candidate[77] = candidate[99] = 2;
    const RowMetrics row = compared(control, candidate, 0);
    EXPECT_EQ(row.top, 77);
    EXPECT_FALSE(row.same_top);
    EXPECT_EQ(row.top2_margin, 0);
    candidate[41] = 2;
    EXPECT_TRUE(compared(control, candidate, 0).same_top);
    EXPECT_EQ(compared(std::vector<float>(9, 0.0f), std::vector<float>(9, 0.0f), 0).top, 0);
  });
}

TEST(LogitMetrics, MarginIsTheDistanceToTheRunnerUp) {
  on_every_target([] {
    for (const size_t top : {0u, 1u, 30u, 63u, 64u}) {
      std::vector<float> row(65, -3.0f);
      row[top] = 4;
      row[(top + 20) % 65] = 2.5f;
      EXPECT_EQ(compared(row, row, 0).top2_margin, 1.5) << top;
    }
    EXPECT_EQ(compared({5.0f}, {5.0f}, 0).top2_margin, 0);
  });
}

TEST(LogitMetrics, FarLogitsUnderflowWithoutHarm) {
  std::vector<float> control(40, -3e4f), candidate(40, -2e4f);
  control[5] = candidate[5] = 1e4f;
  const RowMetrics row = compared(control, candidate, 6);
  EXPECT_TRUE(row.finite);
  EXPECT_EQ(row.kld, 0);
  EXPECT_EQ(row.nll_ctrl, 4e4);
  EXPECT_EQ(row.nll_cand, 3e4);
}

TEST(LogitMetrics, NonFiniteAnywhereIsFlagged) {
  on_every_target([] {
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const size_t at : {0u, 15u, 16u, 37u, 38u}) {
        std::vector<float> good(39, 0.5f), broken = good;
        broken[at] = bad;
        EXPECT_FALSE(compared(good, broken, 2).finite) << bad << " at " << at;
        EXPECT_FALSE(compared(broken, good, 2).finite) << bad << " at " << at;
      }
    }
  });
}

TEST(LogitMetrics, OneControlRowServesManyCandidates) {
  std::mt19937_64 random(9);
  ControlRow row;
  for (const size_t vocab : {700u, 300u, 900u}) {  // shrinks and grows
    const auto control = random_row(random, vocab, 4);
    row.prepare(control.data(), static_cast<int64_t>(vocab));
    for (int i = 0; i < 3; ++i) {
      const auto candidate = disturbed(random, control, 0.1f);
      EXPECT_EQ(row.compare(candidate.data(), 5).kld, compared(control, candidate, 5).kld);
      EXPECT_EQ(row.compare(candidate.data(), 5).nll_ctrl, -row.logprob(5));
    }
  }
}

TEST(LogitMetrics, ImpossibleInputIsRefused) {
  const std::vector<float> row(4, 0.0f);
  EXPECT_THROW(compared(row, row, 4), ValueError);
  EXPECT_THROW(compared(row, row, -1), ValueError);
  ControlRow control;
  EXPECT_THROW(control.prepare(row.data(), 0), ShapeError);
}

TEST(PositionBuckets, LabelIsTheFirstEdgeNotBelow) {
  const PositionBuckets buckets({256, 512, 2048});
  EXPECT_EQ(buckets.label(0), "256");
  EXPECT_EQ(buckets.label(256), "256");
  EXPECT_EQ(buckets.label(257), "512");
  EXPECT_EQ(buckets.label(2048), "2048");
  EXPECT_EQ(buckets.label(2049), "over 2048");
  EXPECT_THROW(PositionBuckets({}), ValueError);
  EXPECT_THROW(PositionBuckets({5, 5}), ValueError);
  EXPECT_THROW(PositionBuckets({0}), ValueError);
}

// Test vector "logits" of the method: 12 positions as 3 documents of 4.
TEST(LogitSummary, PublishedErrorsOfThePerplexityRatio) {
  const std::vector<double> ctrl = {2.31, .12,  1.05, 3.40, .77,  .03,
                                    1.90, 2.66, .45,  .88,  1.21, .19};
  const std::vector<double> delta = {.02, -.01, .05, .10, -.03, 0, .01, .04, .02, -.02, .03, .01};
  std::vector<LogitRecord> records(3);
  for (size_t i = 0; i < ctrl.size(); ++i) {
    RowMetrics row;
    row.nll_ctrl = ctrl[i];
    row.nll_cand = ctrl[i] + delta[i];
    row.kld = delta[i];  // no distribution has this one; it must meet the same formulas
    records[i / 4].document = std::to_string(i / 4);
    add_row(records[i / 4], row);
  }
  const LogitSummary summary = summarize(records);
  EXPECT_EQ(summary.n, 12);
  EXPECT_EQ(summary.documents, 3);
  EXPECT_NEAR(summary.ln_ppl_ratio.mean, 0.0183333333, 1e-10);
  EXPECT_NEAR(summary.ln_ppl_ratio.se_naive, 0.0100629333, 1e-10);
  EXPECT_NEAR(summary.ln_ppl_ratio.se_cluster, 0.0109290642, 1e-10);
  EXPECT_NEAR(std::exp(summary.ln_ppl_ratio.mean), 1.0185024206, 1e-10);
  EXPECT_NEAR(summary.kld.mean, 0.0183333333, 1e-10);
  EXPECT_NEAR(summary.kld.se_cluster, 0.0109290642, 1e-10);
  EXPECT_NEAR(summary.kld.se_naive, 0.0100629333, 1e-8);  // kld_values are F32
}

TEST(LogitSummary, PublishedPercentiles) {
  LogitRecord record;
  for (const double kld : {.001, .004, .002, .05, .0005, .011, .003, .2, .0001, .007}) {
    RowMetrics row;
    row.kld = kld;
    add_row(record, row);
  }
  const LogitSummary summary = summarize({&record, 1});
  const std::map<double, double> expected = {{0.01, .000136}, {0.05, .00028}, {0.5, .0035},
                                             {0.9, .065},     {0.95, .1325},  {0.99, .1865},
                                             {0.999, .19865}};
  size_t checked = 0;
  for (size_t i = 0; i < kKldQuantiles.size(); ++i) {
    const auto found = expected.find(kKldQuantiles[i]);
    if (found == expected.end()) continue;
    EXPECT_NEAR(summary.kld_quantiles[i], found->second, 1e-7 * found->second + 1e-9);
    ++checked;
  }
  EXPECT_EQ(checked, expected.size());
  EXPECT_FLOAT_EQ(static_cast<float>(summary.kld_min), .0001f);
  EXPECT_FLOAT_EQ(static_cast<float>(summary.kld_max), .2f);
  EXPECT_TRUE(std::isnan(summary.kld.se_cluster));  // one document
}

TEST(LogitSummary, RecordsOfOneDocumentAreOneCluster) {
  std::vector<LogitRecord> split(4), whole(2);
  std::mt19937_64 random(11);
  for (size_t i = 0; i < 40; ++i) {
    RowMetrics row;
    row.kld = std::uniform_real_distribution<double>(0, 1)(random);
    row.nll_cand = row.kld;
    add_row(split[i / 10], row);
    add_row(whole[i / 20], row);
  }
  for (size_t i = 0; i < 4; ++i) split[i].document = i < 2 ? "a" : "b";
  whole[0].document = "a", whole[1].document = "b";
  const LogitSummary of_split = summarize(split), of_whole = summarize(whole);
  EXPECT_EQ(of_split.documents, 2);
  EXPECT_NEAR(of_split.kld.se_cluster, of_whole.kld.se_cluster, 1e-14);
  EXPECT_NEAR(of_split.kld.mean, of_whole.kld.mean, 1e-14);
}

TEST(LogitSummary, NonFinitePositionsAreCountedAndLeftOut) {
  LogitRecord record;
  RowMetrics bad, good;
  bad.finite = false;
  good.kld = 0.5;
  add_row(record, bad);
  EXPECT_EQ(summarize({&record, 1}).n, 0);
  add_row(record, good);
  add_row(record, bad);
  const LogitSummary summary = summarize({&record, 1});
  EXPECT_EQ(summary.non_finite, 2);
  EXPECT_EQ(summary.n, 1);
  EXPECT_EQ(summary.kld.mean, 0.5);
  EXPECT_EQ(summarize({}).n, 0);
}

}  // namespace
}  // namespace kv
