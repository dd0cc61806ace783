#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/simd.h"
#include "ops/gelu_tanh_mul.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/silu_mul.h"

namespace kv {
namespace {

std::vector<float> gaussian(int64_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(rng);
  return out;
}

/// F32 arithmetic may land on the other side of a BF16 rounding boundary: one BF16 step, and only
/// rarely.
void expect_within_a_step(const std::vector<uint16_t>& out, const std::vector<uint16_t>& ref) {
  size_t different = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_LE(std::abs(static_cast<int>(out[i]) - static_cast<int>(ref[i])), 1) << i;
    different += out[i] != ref[i];
  }
  EXPECT_LE(different, 1 + out.size() / 200);
}

class Elementwise : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_simd_target(GetParam()); }
  void TearDown() override { force_simd_target(""); }
};

TEST_P(Elementwise, RmsNormMatchesDouble) {
  for (const int64_t size : {5, 64, 576}) {
    const auto x = gaussian(9 * size, 1), weight = gaussian(size, 2);
    std::vector<uint16_t> out(x.size()), ref(x.size());
    const auto vx = TensorView::contiguous(x.data(), DType::kF32, {9, size});
    rms_norm(vx, weight, 1e-5f, TensorView::contiguous(out.data(), DType::kBF16, {9, size}));
    rms_norm_ref(vx, weight, 1e-5f, TensorView::contiguous(ref.data(), DType::kBF16, {9, size}));
    expect_within_a_step(out, ref);
  }
}

TEST_P(Elementwise, SiluMulMatchesDouble) {
  auto gate_up = gaussian(9 * 2 * 100, 3);
  gate_up[0] = -120;  // exp(120) overflows F32: silu must be -0, not NaN
  gate_up[1] = 90;
  gate_up[2] = -300;
  std::vector<uint16_t> out(900), ref(900);
  const auto view = TensorView::contiguous(gate_up.data(), DType::kF32, {9, 200});
  silu_mul(view, TensorView::contiguous(out.data(), DType::kBF16, {9, 100}));
  silu_mul_ref(view, TensorView::contiguous(ref.data(), DType::kBF16, {9, 100}));
  EXPECT_EQ(std::fabs(bf16::decode(out[0])), 0.0f);
  EXPECT_EQ(std::fabs(bf16::decode(out[2])), 0.0f);
  out[0] = ref[0] = out[2] = ref[2] = 0;
  expect_within_a_step(out, ref);
}

TEST_P(Elementwise, GeluTanhMulMatchesDouble) {
  auto gate_up = gaussian(9 * 2 * 100, 6);
  gate_up[0] = -1e4f;  // the cube overflows the exponential: gelu must be -0, not NaN
  gate_up[1] = 1e4f;
  gate_up[2] = 0;
  for (size_t i = 3; i < 40; ++i) gate_up[i] = -4 + 0.2f * static_cast<float>(i);
  std::vector<uint16_t> out(900), ref(900);
  const auto view = TensorView::contiguous(gate_up.data(), DType::kF32, {9, 200});
  gelu_tanh_mul(view, TensorView::contiguous(out.data(), DType::kBF16, {9, 100}));
  gelu_tanh_mul_ref(view, TensorView::contiguous(ref.data(), DType::kBF16, {9, 100}));
  EXPECT_EQ(std::fabs(bf16::decode(out[0])), 0.0f);
  out[0] = ref[0] = 0;
  expect_within_a_step(out, ref);
}

TEST_P(Elementwise, RmsNormInPlaceIsRmsNormOfEachGroup) {
  constexpr int64_t kRows = 9, kGroups = 3, kSize = 40, kStride = 5 * kSize;
  auto x = gaussian(kRows * kStride, 7);
  const auto before = x, weight = gaussian(kSize, 8);
  TensorView view = TensorView::contiguous(x.data(), DType::kF32, {kRows, kGroups, kSize});
  view.strides[0] = kStride;
  rms_norm_in_place(view, weight, 1e-6f);
  for (int64_t i = 0; i < kRows * kStride; ++i) {
    const int64_t group = i % kStride / kSize;
    const auto at = static_cast<size_t>(i);
    if (group >= kGroups) {
      ASSERT_EQ(x[at], before[at]) << "beyond the groups";
      continue;
    }
    double squares = 0;
    for (int64_t d = i - i % kSize; d < i - i % kSize + kSize; ++d)
      squares +=
          static_cast<double>(before[static_cast<size_t>(d)]) * before[static_cast<size_t>(d)];
    const double expected =
        before[at] / std::sqrt(squares / kSize + 1e-6) * weight[static_cast<size_t>(i % kSize)];
    ASSERT_NEAR(x[at], expected, 1e-6 * std::abs(expected)) << i;  // some roundings of 2^-24
  }
}

TEST_P(Elementwise, RopeMatchesDoubleWithStridesAndBias) {
  for (const int64_t dim : {40, 64, 128}) {
    std::vector<double> inv_freq;
    for (int64_t i = 0; i < dim / 2; ++i) {
      inv_freq.push_back(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
    }
    const RopeTable table(inv_freq, 1.0, 100);
    const auto x = gaussian(10 * 5 * dim, 4), bias = gaussian(3 * dim, 5);
    std::vector<int32_t> positions = {0, 1, 99, 50, 3, 7, 20, 21, 22, 23};
    std::vector<uint16_t> out(static_cast<size_t>(10 * 3 * dim)), ref(out.size());
    TensorView view = TensorView::contiguous(x.data(), DType::kF32, {10, 3, dim});
    view.strides[0] = 5 * dim;  // 3 of 5 heads of a joint projection
    rope(view, bias, positions, table,
         TensorView::contiguous(out.data(), DType::kBF16, {10, 3, dim}));
    rope_ref(view, bias, positions, table,
             TensorView::contiguous(ref.data(), DType::kBF16, {10, 3, dim}));
    expect_within_a_step(out, ref);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Elementwise, testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return target.param; });

TEST(Rope, AQuarterTurnSwapsTheHalves) {
  const RopeTable table(std::vector<double>{std::numbers::pi / 2}, 1.0, 2);
  const std::vector<float> x = {3, 5};
  std::vector<uint16_t> out(2);
  rope(TensorView::contiguous(x.data(), DType::kF32, {1, 1, 2}), {}, std::vector<int32_t>{1}, table,
       TensorView::contiguous(out.data(), DType::kBF16, {1, 1, 2}));
  EXPECT_EQ(bf16::decode(out[0]), -5);
  EXPECT_EQ(bf16::decode(out[1]), 3);
}

TEST(Rope, APositionBeyondTheContextIsRefused) {
  const RopeTable table(std::vector<double>{1.0}, 1.0, 8);
  const std::vector<float> x = {3, 5};
  std::vector<uint16_t> out(2);
  EXPECT_THROW(
      rope(TensorView::contiguous(x.data(), DType::kF32, {1, 1, 2}), {}, std::vector<int32_t>{8},
           table, TensorView::contiguous(out.data(), DType::kBF16, {1, 1, 2})),
      ValueError);
}

}  // namespace
}  // namespace kv
