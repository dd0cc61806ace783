// Pages of latents (MLA): one vector a token, of which V is the beginning.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/simd.h"
#include "tests/ops/paged_case.h"

namespace kv {
namespace {

constexpr Format kLatentFormats[] = {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead,
                                     Format::kE4m3PerTokenTile};

PagedCase::Options latents(Format format) {
  PagedCase::Options o;
  o.k = o.v = format;
  o.num_kv_heads = 1;
  o.q_per_kv = 5;
  o.head_dim = 144;
  o.latent_values = 128;
  o.seq_lens = {66, 0, 1, 130};
  o.queries = {9, 0, 1, 3};
  return o;
}

std::vector<float> attended(const PagedCase& c, bool is_reference, Math math = Math::kBf16,
                            int32_t keys_per_split = 0) {
  std::vector<float> out;
  AttendParams p = c.params(out);
  p.math = math;
  p.keys_per_split = keys_per_split;
  const std::vector<float> nobody_reads = {std::nanf("")};
  p.v_scale = nobody_reads;  // V is read through K's scale
  is_reference ? attend_ref(p) : void(attend(p, Device::kCpu));
  return out;
}

/// In F32; scores stay under 60, sums have 144 terms: see attend_test.cc.
void expect_near(const std::vector<float>& out, const std::vector<float>& ref, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(out.size(), ref.size());
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << what << " element " << i;
    worst = std::max<double>(worst, std::fabs(out[i] - ref[i]));
  }
  EXPECT_LT(worst, tolerance) << what;
}

TEST(AttendLatents, EveryFormatOrderAndBlockSizeMatchesTheReferenceOnEveryTarget) {
  for (const Format format : kLatentFormats) {
    for (const int64_t block_size : {1, 61, 64}) {
      PagedCase::Options o = latents(format);
      o.order = block_size == 61 ? PageOrder::kNhd : PageOrder::kCpu;
      o.block_size = block_size;
      const PagedCase c(o);
      const std::vector<float> ref = attended(c, true);
      for (const std::string& target : simd_targets()) {
        force_simd_target(target);
        expect_near(attended(c, false), ref, 2e-4, target + " " + std::string(name(format)));
      }
      force_simd_target("");
    }
  }
}

TEST(AttendLatents, DeepSeeksSizesAndOddOnes) {
  for (const auto& [latent, turned] : {std::pair{512, 64}, {512, 4}, {20, 8}, {132, 12}}) {
    PagedCase::Options o = latents(latent == 512 ? Format::kE4m3PerTokenTile : Format::kBf16);
    o.latent_values = latent;
    o.head_dim = latent + turned;
    o.seq_lens = {67};
    o.queries = {3};
    const PagedCase c(o);
    expect_near(attended(c, false), attended(c, true), 2e-4, std::to_string(latent));
  }
}

/// The same bits alone, among others, token by token and in one go.
TEST(AttendLatents, BitsDependOnTheSequenceAlone) {
  for (const Format format : kLatentFormats) {
    PagedCase::Options o = latents(format);
    o.seq_lens = {200, 130};
    o.queries = {200, 1};
    const PagedCase together(o);
    const std::vector<float> all = attended(together, false);
    for (const int32_t last : {64, 65, 200}) {
      std::vector<float> out;
      AttendParams p = together.params(out);
      const int32_t len = last;
      const std::vector<int32_t> start = {0, 1};
      p.seq_lens = {&len, 1};
      p.query_start = start;
      p.block_table.sizes[0] = 1;
      p.q.data = p.q.as<uint16_t>() + (last - 1) * p.q.strides[0];
      p.q.sizes[0] = p.out.sizes[0] = 1;
      attend(p, Device::kCpu);
      const auto width = static_cast<std::ptrdiff_t>(5 * 128);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + width, all.begin() + (last - 1) * width))
          << name(format) << " query " << last;
    }
  }
}

TEST(AttendLatents, SplitsAreCombined) {
  const PagedCase c(latents(Format::kE4m3PerTensor));
  expect_near(attended(c, false, Math::kBf16, 64), attended(c, true), 2e-4, "split");
}

/// With Q and P through E4M3 the result moves by about their rounding, 2^-4, and not more; over
/// scales of tiles engines widen to BF16.
TEST(AttendLatents, Fp8MathRoundsQueriesAndWeights) {
  const PagedCase c(latents(Format::kE4m3PerTensor));
  const std::vector<float> plain = attended(c, false), rounded = attended(c, false, Math::kFp8);
  EXPECT_NE(plain, rounded);
  expect_near(rounded, plain, 1.0, "fp8");
  EXPECT_THROW(attended(PagedCase(latents(Format::kE4m3PerTokenTile)), false, Math::kFp8),
               UnsupportedError);
}

TEST(StoreLatents, EveryFormatAndTargetGivesTheReferencesBytes) {
  for (const Format format : kLatentFormats) {
    for (const float sigma : {1e-3f, 300.0f}) {
      PagedCase::Options o = latents(format);
      o.k_sigma = sigma;
      const PagedCase c(o);
      PagedCase by_reference(o);
      const CacheView& view = by_reference.cache->layer(0);
      const int64_t bytes = view.num_blocks * view.block_stride;
      std::memset(view.data, 0xff, static_cast<size_t>(bytes));
      std::vector<int64_t> slots;
      for (size_t s = 0; s < o.seq_lens.size(); ++s) {
        for (int32_t t = 0; t < o.seq_lens[s]; ++t) slots.push_back(c.slot(s, t));
      }
      StoreKvParams p;
      p.k = TensorView::contiguous(c.k.data(), DType::kBF16, {std::ssize(slots), 1, o.head_dim});
      p.slot_mapping = slots;
      p.cache = view;
      p.k_scale = c.k_scale;
      store_kv_ref(p);
      EXPECT_EQ(0, std::memcmp(view.data, c.cache->layer(0).data, static_cast<size_t>(bytes)))
          << name(format) << " sigma " << sigma;
    }
  }
}

/// 656 bytes: 512 codes, four scales, 64 values in BF16, in this order (vLLM's fp8_ds_mla).
TEST(StoreLatents, TilesLieAsEnginesHaveThem) {
  std::vector<LayerGeometry> layers = {{1, 576, 0, 512}};
  const KvCache cache(layers, {{Format::kE4m3PerTokenTile, Format::kE4m3PerTokenTile}}, 4, 1,
                      PageOrder::kCpu);
  ASSERT_EQ(cache.layer(0).page.page_bytes, 4 * 656);
  std::vector<float> x(576, 0.0f);
  x[0] = 448;
  x[1] = -1;
  x[130] = 2;     // the second tile's largest: its scale is 2 / 448
  x[512] = 1e9f;  // the turned part keeps its BF16
  std::vector<uint16_t> k;
  for (const float value : x) k.push_back(bf16::encode(value));
  const std::vector<int64_t> slots = {2};
  StoreKvParams p;
  p.k = TensorView::contiguous(k.data(), DType::kBF16, {1, 1, 576});
  p.slot_mapping = slots;
  p.cache = cache.layer(0);
  StoreCounts counts;
  p.counts = &counts;
  store_kv(p, Device::kCpu);
  const uint8_t* token = p.cache.block(0) + 2 * 656;
  EXPECT_EQ(token[0], 0x7e);
  EXPECT_EQ(token[1], e4m3::encode(-1.0f));
  EXPECT_EQ(token[130], 0x7e);
  std::array<float, 4> scales;
  std::memcpy(scales.data(), token + 512, sizeof scales);
  const float least = std::numeric_limits<float>::min();
  EXPECT_EQ(scales, (std::array<float, 4>{1, 2.0f / 448, least, least}));
  EXPECT_EQ(0, std::memcmp(token + 528, k.data() + 512, 128));
  EXPECT_EQ(p.cache.block(0)[656], 0xff) << "slots that are not named are left untouched";
  EXPECT_EQ(counts.saturated, 0);
}

TEST(StoreLatents, WhatNoEngineStoresIsRefused) {
  const auto cache = [](Format k, Format v, int64_t latent) {
    KvCache(std::vector<LayerGeometry>{{1, latent + 16, 0, latent}},
            std::vector<LayerFormat>{{k, v}}, 16, 1, PageOrder::kCpu);
  };
  EXPECT_THROW(cache(Format::kE4m3PerTokenHead, Format::kE4m3PerTokenHead, 128), UnsupportedError);
  EXPECT_THROW(cache(Format::kBf16, Format::kE4m3PerTensor, 128), UnsupportedError);
  EXPECT_THROW(cache(Format::kE4m3PerTokenTile, Format::kE4m3PerTokenTile, 96), UnsupportedError);
  EXPECT_THROW(
      PageLayout::make(Format::kE4m3PerTokenTile, Format::kBf16, 1, 64, 16, PageOrder::kCpu),
      UnsupportedError);
  const PagedCase c(latents(Format::kBf16));
  std::vector<float> out;
  EXPECT_THROW(attend(c.params(out), Device::kCuda), UnsupportedError);
}

}  // namespace
}  // namespace kv
