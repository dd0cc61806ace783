#include "evaluate/predicted_kld.h"

#include <gtest/gtest.h>

#include <cmath>

#include "evaluate/control_entropy.h"
#include "evaluate/range_health.h"

namespace kv {
namespace {

// ---- The entropy -------------------------------------------------------------------------------

TEST(ControlEntropy, IsThatOfTheSoftmax) {
  const std::vector<float> even(1000, 3.5f);
  EXPECT_NEAR(entropy_of(even), std::log(1000.0), 1e-12);
  const float odds[] = {std::log(3.0f), 0};
  // The logit is rounded to F32: 6e-8 of it moves the entropy by less than that.
  EXPECT_NEAR(entropy_of(odds), -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-7);
  const float sure[] = {900, 0, -900};
  EXPECT_EQ(entropy_of(sure), 0);
  const float broken[] = {1, INFINITY};
  EXPECT_TRUE(std::isnan(entropy_of(broken)));
}

TEST(ControlEntropy, IsTheMeanOverTheAskedRowsThatAreFinite) {
  OutputTap tap;
  tap.num_tokens = 40;
  tap.hidden_size = 1;
  tap.vocab_size = 2;
  std::vector<uint16_t> normed(40);
  for (size_t i = 0; i < normed.size(); ++i) normed[i] = static_cast<uint16_t>(i);
  tap.normed = normed.data();
  // Row 7 is broken, even rows are a coin, odd ones are certain.
  tap.logits = [](const uint16_t* in, int64_t rows, float* out) {
    for (int64_t r = 0; r < rows; ++r) {
      out[2 * r] = in[r] == 7 ? NAN : in[r] % 2 == 0 ? 0.0f : 1000.0f;
      out[2 * r + 1] = 0;
    }
  };
  ControlEntropy entropy;
  EXPECT_EQ(entropy.record().positions, 0);
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 20; ++row) rows.push_back(row);
  entropy.add(tap, rows);
  const int64_t last = 39;
  entropy.add(tap, {&last, 1});
  EXPECT_EQ(entropy.record().positions, 20);
  EXPECT_NEAR(entropy.record().entropy, std::log(2.0) * 10 / 20, 1e-12);
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
  const EntropyRecord two{"entropy", 2, 10}, four{"entropy", 4, 10};
  const auto predicted = [&](const char* arm) {
    return predicted_kld(two_layers(), two, ArmSpec::parse(arm));
  };
  const double both = predicted("fp8_scale1/bf16=0");
  EXPECT_GT(both, 0);
  EXPECT_NEAR(predicted("fp8_scale1"), 2 * both, 1e-12);
  EXPECT_NEAR(predicted_kld(two_layers(), four, ArmSpec::parse("fp8_scale1")), 8 * both, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1/bf16=0k,1"), both * 0.01 / 0.25, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1/bf16=0v,1"), both * 0.16 / 0.25, 1e-12);
  EXPECT_EQ(predicted("fp8_scale1/bf16=0,1"), 0);
  EXPECT_EQ(predicted("bf16"), 0);
  EXPECT_TRUE(std::isnan(predicted("fp8_head")));
  EXPECT_TRUE(std::isnan(predicted_kld(two_layers(), {}, ArmSpec::parse("fp8_scale1"))));
}

}  // namespace
}  // namespace kv
