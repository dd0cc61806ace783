#include "evaluate/predicted_kld.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evaluate/kld_curve.h"
#include "evaluate/range_health.h"
#include "numeric/bf16.h"

namespace kv {
namespace {

// ---- The curve ---------------------------------------------------------------------------------

/// Two tokens; the first one's logit is `row` times the first channel of what the head reads, whose
/// third one makes it as long as the norm's weights.
struct TwoTokens {
  float row = 1, bias = 0;
  std::vector<float> final_norm = std::vector<float>(4, 2.0f);
  std::vector<uint16_t> normed = std::vector<uint16_t>(4 * 3);  // 3 positions

  explicit TwoTokens(float length = 4) {
    for (size_t i = 2; i < normed.size(); i += 4) normed[i] = bf16::encode(length);
  }

  OutputTap tap() const {
    OutputTap out;
    out.num_tokens = 3;
    out.hidden_size = 4;
    out.vocab_size = 2;
    out.normed = normed.data();
    out.final_norm = final_norm.data();
    out.logits = [this](const uint16_t* in, int64_t rows, float* logits) {
      for (int64_t r = 0; r < rows; ++r) {
        logits[r * 2] = row * bf16::decode(in[r * 4]) + (in[r * 4 + 1] == 0 ? bias : 0);
        logits[r * 2 + 1] = 0;
      }
    };
    return out;
  }
};

// A coin's logit moves by d = +-2 sqrt(error): KLD = ln cosh(d / 2), the same for either sign.
TEST(KldCurve, IsThatOfACoin) {
  KldCurve curve;
  const TwoTokens coin;
  const int64_t rows[] = {0, 2};
  curve.add(coin.tap(), rows);
  const CurveRecord record = curve.record();
  EXPECT_EQ(record.positions, 2);
  ASSERT_EQ(record.errors.size(), record.klds.size());
  for (size_t i = 0; i < record.errors.size(); ++i) {
    const double expected = std::log(std::cosh(std::sqrt(record.errors[i])));
    // The logits are F32: a move of 2 sqrt(e) rounds by 6e-8 of itself, its KLD by twice that.
    EXPECT_NEAR(record.klds[i], expected, 1e-6 * expected + 1e-15) << record.errors[i];
  }
}

// With odds of e^6 the second order is p (1 - p) d^2 / 2; nearly certain answers hardly move.
TEST(KldCurve, ACertainAnswerHardlyMoves) {
  KldCurve curve;
  TwoTokens coin;
  coin.bias = 6;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t row = i % 3;
    curve.add(coin.tap(), {&row, 1});
  }
  const double p = 1 / (1 + std::exp(-6.0));
  const double error = KldCurve::errors().front();
  // The third order, p (1 - p) (1 - 2 p) d^3 / 6, is 2 / 3 sqrt(e) of it where signs do not cancel.
  EXPECT_NEAR(curve.record().klds.front(), p * (1 - p) * 4 * error / 2,
              p * (1 - p) * 2 * error * 0.7 * std::sqrt(error));
}

// An error is relative to what the head reads: half as long, a quarter of the squared error.
TEST(KldCurve, ErrorsAreRelativeToWhatTheHeadReads) {
  const int64_t rows[] = {1};
  const auto curve_of = [&](float length) {
    const TwoTokens coin(length);
    KldCurve curve;
    curve.add(coin.tap(), rows);
    return curve.record();
  };
  const CurveRecord whole = curve_of(4), half = curve_of(2);
  for (size_t i = 1; i < whole.klds.size(); ++i) {  // steps of four
    EXPECT_NEAR(half.klds[i], whole.klds[i - 1], 1e-6 * half.klds[i] + 1e-15);
  }
}

TEST(KldCurve, NoPositionsNoCurve) {
  EXPECT_EQ(KldCurve().record().positions, 0);
  KldCurve curve;
  TwoTokens broken;
  broken.bias = INFINITY;
  const int64_t row = 0;
  curve.add(broken.tap(), {&row, 1});
  EXPECT_EQ(curve.record().positions, 0);
  EXPECT_TRUE(std::isnan(curve_at(curve.record(), 0.1)));
}

TEST(KldCurve, BetweenItsPointsItIsAPowerOfTheError) {
  const CurveRecord curve{"curve", {0.01, 0.04, 0.16}, {0.05, 0.2, 0.4}, 1};
  EXPECT_DOUBLE_EQ(curve_at(curve, 0.001), 0.005);
  EXPECT_DOUBLE_EQ(curve_at(curve, 0.01), 0.05);
  EXPECT_NEAR(curve_at(curve, 0.02), 0.1, 1e-12);
  EXPECT_NEAR(curve_at(curve, 0.08), 0.2 * std::sqrt(2.0), 1e-12);
  EXPECT_DOUBLE_EQ(curve_at(curve, 9), 0.4);
  EXPECT_EQ(curve_at(curve, 0), 0);
  EXPECT_TRUE(std::isnan(curve_at(curve, NAN)));
}

// ---- The prediction ----------------------------------------------------------------------------

/// Layers 0 and 1 under scale 1.0; damages of K, V and both.
std::vector<RangeRecord> two_layers() {
  std::vector<RangeRecord> out;
  for (const int64_t layer : {0, 1}) {
    for (const auto& [side, damage] : {std::pair{"k", 0.4}, {"v", 0.1}, {"kv", 0.5}}) {
      RangeRecord record;
      record.layer = layer;
      record.side = side;
      record.layout = "fp8_scale1";
      record.normed_damage = damage;
      out.push_back(record);
    }
  }
  return out;
}

TEST(PredictedKld, AddsWhatTheArmRounds) {
  // KLD = error: what comes out is the sum of squares times one factor.
  const CurveRecord line{"curve", {1e-6, 100}, {1e-6, 100}, 1};
  const auto predicted = [&](const char* arm) {
    return predicted_kld(two_layers(), line, ArmSpec::parse(arm));
  };
  const double both = predicted("fp8_scale1/bf16=0");
  EXPECT_GT(both, 0);
  EXPECT_NEAR(predicted("fp8_scale1"), 2 * both, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1/bf16=0k,1"), both * 0.01 / 0.25, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1/bf16=0v,1"), both * 0.16 / 0.25, 1e-12);
  EXPECT_EQ(predicted("fp8_scale1/bf16=0,1"), 0);
  EXPECT_EQ(predicted("bf16"), 0);
  EXPECT_TRUE(std::isnan(predicted("fp8_head")));
  EXPECT_TRUE(std::isnan(predicted_kld(two_layers(), {}, ArmSpec::parse("fp8_scale1"))));
}

}  // namespace
}  // namespace kv
