#include "evaluate/predicted_kld.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kv {
namespace {

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
  const auto predicted = [&](const char* arm, double nll = 2) {
    return predicted_kld(two_layers(), nll, ArmSpec::parse(arm));
  };
  const auto damage = [](const char* arm) { return arm_damage(two_layers(), ArmSpec::parse(arm)); };
  EXPECT_NEAR(damage("fp8_scale1"), 0.5, 1e-12);
  EXPECT_NEAR(damage("fp8_scale1/bf16=0"), 0.25, 1e-12);
  EXPECT_NEAR(damage("fp8_scale1/bf16=0k,1"), 0.01, 1e-12);
  EXPECT_NEAR(damage("fp8_scale1/bf16=0v,1"), 0.16, 1e-12);
  EXPECT_EQ(predicted("fp8_scale1/bf16=0,1"), 0);
  EXPECT_EQ(predicted("bf16"), 0);
  EXPECT_TRUE(std::isnan(predicted("fp8_head")));
  // A small damage counts more where the control is less sure; one that leaves nothing of it does
  // not ask.
  EXPECT_GT(predicted("fp8_scale1/bf16=0k,1", 4), 1.5 * predicted("fp8_scale1/bf16=0k,1", 1));
  std::vector<RangeRecord> lost = two_layers();
  for (RangeRecord& record : lost) record.normed_damage *= 10;
  const ArmSpec arm = ArmSpec::parse("fp8_scale1");
  EXPECT_NEAR(predicted_kld(lost, 4, arm), predicted_kld(lost, 1, arm),
              0.01 * predicted_kld(lost, 1, arm));
}

}  // namespace
}  // namespace kv
