#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "cpu/gemm_bf16.h"
#include "kvscale/error.h"
#include "numeric/simd.h"
#include "tests/ops/paged_case.h"

namespace kv {
namespace {

struct Layer {
  Layer(int64_t out_features, int64_t in_features, int64_t max_rows)
      : out(out_features), in(in_features) {
    std::mt19937 rng(5);
    weights = random_bf16(rng, static_cast<size_t>(out * in), 0.05f);
    x = random_bf16(rng, static_cast<size_t>(max_rows * in), 1.0f);
    packed = PackedMatrix::pack(out, in, [this](int64_t first, int64_t count, uint16_t* to) {
      std::copy_n(weights.data() + first * in, count * in, to);
    });
  }

  std::vector<float> run(int64_t rows) const {
    std::vector<float> y(static_cast<size_t>(rows * out));
    matmul(packed, TensorView::contiguous(x.data(), DType::kBF16, {rows, in}),
           TensorView::contiguous(y.data(), DType::kF32, {rows, out}));
    return y;
  }

  int64_t out, in;
  std::vector<uint16_t> weights, x;
  PackedMatrix packed;
};

// Products of two BF16 are exact in F32; a sum of `in` terms of size 0.05 in F32 is off by at most
// in * 2^-24 * sum|terms|.
TEST(Matmul, MatchesDoubleOnEveryTarget) {
  // 1001 and 100 outputs end within a panel, 570 inputs within a tile.
  for (const auto& [out, in] : {std::pair{96, 576}, {1001, 64}, {100, 570}}) {
    const Layer layer(out, in, 40);
    for (const int64_t rows : {1, 3, 40}) {
      std::vector<float> ref(static_cast<size_t>(rows * out));
      matmul_ref(TensorView::contiguous(layer.weights.data(), DType::kBF16, {out, in}),
                 TensorView::contiguous(layer.x.data(), DType::kBF16, {rows, in}),
                 TensorView::contiguous(ref.data(), DType::kF32, {rows, out}));
      for (const std::string& target : simd_targets()) {
        force_simd_target(target);
        const auto y = layer.run(rows);
        for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], ref[i], 2e-5) << i << " " << target;
      }
      force_simd_target("");
    }
  }
}

// The rule that lets arms share a batch. Shapes as in the models: k small and large, odd numbers of
// columns. Every way to multiply has it, so the targets that have one of their own are enough.
TEST(Matmul, ARowsBitsDoNotDependOnTheNumberOfRows) {
  const int64_t shapes[][2] = {{960, 576}, {576, 1536}, {1001, 896}, {256, 4864}};
  std::set<std::string_view> seen;
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    if (target == "scalar" || !seen.insert(cpu::gemm_bf16_kernel()).second) continue;
    SCOPED_TRACE(target);
    for (const auto& [out, in] : shapes) {
      const Layer layer(out, in, 300);
      const auto all = layer.run(300);
      for (const int64_t rows : {1, 2, 5, 6, 7, 15, 16, 17, 33, 65, 97, 200}) {
        const auto some = layer.run(rows);
        EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << rows << " rows of [" << out << ", " << in << "]";
      }
    }
  }
  force_simd_target("");
  EXPECT_TRUE(!seen.empty() || simd_targets().size() == 1);
}

TEST(Matmul, WrongShapesAreNamed) {
  const Layer layer(16, 32, 4);
  std::vector<float> y(64);
  try {
    matmul(layer.packed, TensorView::contiguous(layer.x.data(), DType::kBF16, {4, 16}),
           TensorView::contiguous(y.data(), DType::kF32, {4, 16}));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "matmul: x: expected in_features = 32 (from the request), found 16");
  }
}

}  // namespace
}  // namespace kv
