#include "ops/store_kv.h"

#include <gtest/gtest.h>

#include <limits>

#include "kvscale/error.h"
#include "numeric/simd.h"
#include "tests/ops/paged_case.h"

namespace kv {
namespace {

struct Written {
  std::vector<uint8_t> bytes;
  StoreCounts counts;
};

/// Writes `k` (for both sides) at the slots given into a fresh cache, by the CPU twin or the
/// reference.
Written write(const std::vector<float>& values, Format format, PageOrder order,
              const std::vector<int64_t>& slots, const std::vector<float>& scales,
              Rounding rounding, bool reference, int64_t block_size = 16) {
  const auto heads = static_cast<int64_t>(scales.size()),
             tokens = static_cast<int64_t>(slots.size());
  const int64_t dim = static_cast<int64_t>(values.size()) / (heads * tokens);
  KvCache cache({{heads, dim, 0}}, {{format, format}}, block_size, 6, order);
  std::vector<uint16_t> x;
  for (const float value : values) x.push_back(bf16::encode(value));
  Written out;
  StoreKvParams p;
  p.k = p.v = TensorView::contiguous(x.data(), DType::kBF16, {tokens, heads, dim});
  p.slot_mapping = slots;
  p.cache = cache.layer(0);
  p.k_scale = p.v_scale = scales;
  p.rounding = rounding;
  p.counts = &out.counts;
  if (reference) {
    store_kv_ref(p);
  } else {
    store_kv(p, Device::kCpu);
  }
  out.bytes.assign(p.cache.data, p.cache.data + p.cache.num_blocks * p.cache.block_stride);
  return out;
}

std::vector<float> gaussian(size_t n, float sigma, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

TEST(StoreKv, EveryFormatOrderRoundingAndTargetGivesTheReferencesBytes) {
  const std::vector<int64_t> slots = {3, 17, -1, 90, 95, 0};
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    for (const Format format :
         {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead, Format::kE4m3PerTokenHead}) {
      for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd, PageOrder::kCpu}) {
        for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
          for (const float sigma : {1e-3f, 1.0f, 300.0f}) {
            const auto x = gaussian(6 * 2 * 80, sigma, 7);
            const Written cpu = write(x, format, order, slots, {0.5f, 0.03f}, rounding, false);
            const Written ref = write(x, format, order, slots, {0.5f, 0.03f}, rounding, true);
            EXPECT_EQ(cpu.bytes, ref.bytes) << target << " " << name(format) << " sigma " << sigma;
          }
        }
      }
    }
  }
  force_simd_target("");
}

// The convention, from outside: stored = value / scale.
TEST(StoreKv, StoredCodeIsValueDividedByScale) {
  const Written w = write({448, 1, 448, 1}, Format::kE4m3PerHead, PageOrder::kNhd, {0}, {2.0f},
                          Rounding::kNearestEven, false);
  EXPECT_EQ(w.bytes[0], 0x76);  // 224
  const Written half = write({1, 1, 1, 1}, Format::kE4m3PerTensor, PageOrder::kNhd, {0}, {0.5f},
                             Rounding::kNearestEven, false);
  EXPECT_EQ(half.bytes[0], 0x40);  // 2.0
}

TEST(StoreKv, InfinitiesSaturateNanStaysAndBothAreCounted) {
  const float inf = std::numeric_limits<float>::infinity();
  const Written w =
      write({inf, -inf, std::nanf(""), 1e9f, 500, 1e-5f, 0, 1}, Format::kE4m3PerTensor,
            PageOrder::kNhd, {0}, {1.0f}, Rounding::kNearestEven, false);
  EXPECT_EQ(w.bytes[0], 0x7e);
  EXPECT_EQ(w.bytes[1], 0xfe);
  EXPECT_EQ(w.bytes[2] & 0x7f, 0x7f);
  EXPECT_EQ(w.bytes[3], 0x7e);
  EXPECT_EQ(w.bytes[4], 0x7e);
  EXPECT_EQ(w.counts.saturated, 2 * 4);  // inf, -inf, 1e9, 500 on both sides
  EXPECT_EQ(w.counts.nan, 2);
  EXPECT_EQ(w.counts.flushed, 2);
  EXPECT_EQ(w.counts.values, 16);
}

TEST(StoreKv, AVectorOfZerosGetsTheSmallestInlineScaleAndZeroCodes) {
  const Written w = write({0, 0, 0, 0}, Format::kE4m3PerTokenHead, PageOrder::kNhd, {0}, {1.0f},
                          Rounding::kNearestEven, false);
  float scale;
  std::memcpy(&scale, w.bytes.data() + 4, 4);
  EXPECT_EQ(scale, 1e-6f);
  EXPECT_EQ(w.bytes[0], 0);
}

TEST(StoreKv, SlotsNotNamedAreLeftUntouched) {
  const Written w = write(gaussian(64, 1, 3), Format::kE4m3PerTensor, PageOrder::kNhd, {5}, {1.0f},
                          Rounding::kNearestEven, false);
  for (size_t i = 0; i < w.bytes.size(); ++i) {
    if (i / 128 == 5) continue;
    EXPECT_EQ(w.bytes[i], 0xff) << i;
  }
}

TEST(StoreKv, RefusesWhatIsOutside) {
  EXPECT_THROW(
      write({1, 1, 1, 1}, Format::kBf16, PageOrder::kNhd, {96}, {1}, Rounding::kNearestEven, false),
      ValueError);
  EXPECT_THROW(
      write({1, 1, 1, 1}, Format::kBf16, PageOrder::kNhd, {-2}, {1}, Rounding::kNearestEven, false),
      ValueError);
  for (const float bad :
       {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity(), 1e-45f}) {
    EXPECT_THROW(write({1, 1, 1, 1}, Format::kE4m3PerTensor, PageOrder::kNhd, {0}, {bad},
                       Rounding::kNearestEven, false),
                 ValueError);
  }
}

}  // namespace
}  // namespace kv
