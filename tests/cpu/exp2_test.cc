// 2^x of the attention kernels, on every target.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/cpu/exp2_test.cc"
#include "hwy/foreach_target.h"
// highway.h and per-target headers must follow foreach_target.h.
#include "cpu/exp2-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

/// n must be a multiple of 16.
void Exp2Of(const float* x, int64_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) hn::StoreU(Exp2(d, hn::LoadU(d, x + i)), d, out + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {
HWY_EXPORT(Exp2Of);
namespace {

std::vector<float> exp2_of(std::vector<float> x) {
  const size_t n = x.size();
  x.resize((n + 15) / 16 * 16, 0.0f);
  std::vector<float> out(x.size());
  HWY_DYNAMIC_DISPATCH(Exp2Of)(x.data(), std::ssize(x), out.data());
  out.resize(n);
  return out;
}

class Exp2 : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_simd_target(GetParam()); }
  void TearDown() override { force_simd_target(""); }
};

INSTANTIATE_TEST_SUITE_P(Targets, Exp2, testing::ValuesIn(simd_targets()),
                         [](const auto& tested) { return tested.param; });

TEST_P(Exp2, IsWithinTwoUlpDownToTheSmallestNormalNumber) {
  std::vector<float> x;
  for (float at = -126; at <= 0; at += 0x1p-11f) x.push_back(at);
  // 2^x moves by less than an ulp between neighbours near 0: what lies just under it too.
  for (int i = 0; i < 1 << 16; ++i) x.push_back(-0x1p-24f * static_cast<float>(i));
  const auto out = exp2_of(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp2(double{x[i]});
    ASSERT_LE(std::fabs(out[i] - exact), 1.7e-7 * exact) << x[i];
  }
}

TEST_P(Exp2, IsExactForWholeNumbers) {
  std::vector<float> x;
  for (int i = 0; i <= 126; ++i) x.push_back(static_cast<float>(-i));
  const auto out = exp2_of(x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(out[i], std::exp2(x[i])) << x[i];
}

TEST_P(Exp2, OfWhatIsHiddenIsZeroAndOfNanNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto out = exp2_of({-160, -1e4f, -std::numeric_limits<float>::max(), -kInfinity,
                            std::nanf(""), -126.5f, -127, -149, -159});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out[i], 0) << i;
  EXPECT_TRUE(std::isnan(out[4]));
  for (size_t i = 5; i < out.size(); ++i) {
    EXPECT_GE(out[i], 0) << i;
    EXPECT_LT(out[i], 0x1p-126f) << i;
  }
}

}  // namespace
}  // namespace kv::cpu
#endif  // HWY_ONCE
