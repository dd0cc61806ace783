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
  const double both = predicted("fp8_scale1/bf16=0");
  EXPECT_GT(both, 0);
  EXPECT_NEAR(predicted("fp8_scale1"), 2 * both, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1", 4), 8 * both, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1/bf16=0k,1"), both * 0.01 / 0.25, 1e-12);
  EXPECT_NEAR(predicted("fp8_scale1/bf16=0v,1"), both * 0.16 / 0.25, 1e-12);
  EXPECT_EQ(predicted("fp8_scale1/bf16=0,1"), 0);
  EXPECT_EQ(predicted("bf16"), 0);
  EXPECT_TRUE(std::isnan(predicted("fp8_head")));
  EXPECT_NEAR(arm_damage(two_layers(), ArmSpec::parse("fp8_scale1")), 0.5, 1e-12);
}

}  // namespace
}  // namespace kv
