// The bulk conversions on every SIMD target of this machine, forced in turn, against the scalar ones.

#include "numeric/bulk.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "numeric/simd.h"

namespace {

using namespace kv;

class EveryTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    force_simd_target(GetParam());
    ASSERT_EQ(active_simd_target(), GetParam());
  }
  void TearDown() override { force_simd_target(""); }
};

INSTANTIATE_TEST_SUITE_P(Machine, EveryTarget, testing::ValuesIn(simd_targets()),
                         [](const auto& test) { return test.param; });

TEST_P(EveryTarget, DecodesAllCodes) {
  std::vector<uint8_t> codes(256);
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  std::vector<float> x(256);
  e4m3_decode(codes.data(), x.data(), 256);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(x[i]), std::bit_cast<uint32_t>(e4m3::decode(codes[i]))) << i;
  }
}

TEST_P(EveryTarget, EncodesRandomBitPatterns) {
  std::mt19937 random(1);
  std::vector<float> x(200003);
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  std::vector<uint8_t> codes(x.size());
  for (const Rounding r : {Rounding::kNearestEven, Rounding::kTruncate}) {
    e4m3_encode(x.data(), codes.data(), x.size(), 1.0f, r);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(codes[i], e4m3::encode(x[i], r)) << x[i];
  }
}

}  // namespace
