#include <limits>

#include "cuda/store_kv.h"
#include "ops/rope.h"
#include "ops/store_kv.h"
#include "tests/cuda/device_case.h"

namespace kv {
namespace {

struct Case {
  Format k = Format::kBf16, v = Format::kBf16;
  PageOrder order = PageOrder::kNhd;
  Rounding rounding = Rounding::kNearestEven;
  int64_t heads = 2, dim = 128, block_size = 16, pad = 0;  // pad: values between two tokens' rows
  std::vector<int64_t> slots = {3, 17, -1, 90, 95, 0};
};

/// Gaussians of many sizes, and a vector that starts with what is special.
std::vector<uint16_t> inputs(const Case& c, float sigma, unsigned seed) {
  std::mt19937 rng(seed);
  auto x = random_bf16(rng, c.slots.size() * static_cast<size_t>(c.heads * c.dim + c.pad), sigma);
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {inf,   -inf, std::nanf(""), -std::nanf(""), 1e9f, -500,
                           1e-5f, 0,    -0.0f,         1e-30f};
  for (size_t i = 0; i < std::size(special); ++i) x[i] = bf16::encode(special[i]);
  return x;
}

void expect_same_bytes(const Case& c, float sigma) {
  const auto k = inputs(c, sigma, 7), v = inputs(c, sigma, 8);
  const auto tokens = static_cast<int64_t>(c.slots.size());
  KvCache cache({{c.heads, c.dim, 0}}, {{c.k, c.v}}, c.block_size, 6, c.order);
  const DevicePages pages(cache.layer(0));
  std::vector<float> k_scale, v_scale;
  for (int64_t h = 0; h < c.heads; ++h) {
    k_scale.push_back(0.03f + 0.1f * static_cast<float>(h));
    v_scale.push_back(0.5f / static_cast<float>(h + 1));
  }
  StoreKvParams p;
  p.k = TensorView::contiguous(k.data(), DType::kBF16, {tokens, c.heads, c.dim});
  p.k.strides[0] += c.pad;
  p.v = p.k;
  p.v.data = const_cast<uint16_t*>(v.data());
  p.slot_mapping = c.slots;
  p.cache = cache.layer(0);
  p.k_scale = k_scale;
  p.v_scale = v_scale;
  p.rounding = c.rounding;
  StoreCounts host_counts, device_counts;
  p.counts = &host_counts;
  store_kv(p, Device::kCpu);

  const auto device_k = to_device(k.data(), k.size()), device_v = to_device(v.data(), v.size());
  StoreKvParams d = p;
  d.k.data = device_k.data();
  d.v.data = device_v.data();
  d.k.device = d.v.device = Device::kCuda;
  d.cache = pages.view();
  d.counts = &device_counts;
  store_kv(d, Device::kCuda);
  const size_t bytes = static_cast<size_t>(p.cache.num_blocks * p.cache.block_stride);
  const auto written = to_host<uint8_t>(pages.view().data, bytes);
  for (size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(written[i], p.cache.data[i])
        << name(c.k) << "," << name(c.v) << " dim " << c.dim << " sigma " << sigma << " byte " << i;
  }
  EXPECT_EQ(device_counts.values, host_counts.values);
  EXPECT_EQ(device_counts.saturated, host_counts.saturated);
  EXPECT_EQ(device_counts.flushed, host_counts.flushed);
  EXPECT_EQ(device_counts.nan, host_counts.nan);

  d.counts = nullptr;  // the variant that does not count writes the same
  cuda::fill_bytes(pages.view().data, 0xff, static_cast<int64_t>(bytes), nullptr);
  store_kv(d, Device::kCuda);
  EXPECT_EQ(to_host<uint8_t>(pages.view().data, bytes), written);
}

TEST(StoreKvCuda, EveryFormatOrderAndRoundingGivesTheCpuTwinsBytes) {
  KV_NEEDS_DEVICE();
  for (const Format format :
       {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead, Format::kE4m3PerTokenHead}) {
    for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd}) {
      for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
        for (const float sigma : {1e-3f, 1.0f, 300.0f}) {
          Case c;
          c.k = c.v = format;
          c.order = order;
          c.rounding = rounding;
          expect_same_bytes(c, sigma);
        }
      }
    }
  }
}

TEST(StoreKvCuda, GeometriesStridesAndMixedFormats) {
  KV_NEEDS_DEVICE();
  for (const int64_t dim : {8, 40, 64, 80, 96, 128, 256}) {
    for (const int64_t heads : {1, 3, 8}) {
      Case c;
      c.dim = dim;
      c.heads = heads;
      c.pad = 24;
      c.k = Format::kE4m3PerTokenHead;
      c.v = Format::kE4m3PerTokenHead;
      expect_same_bytes(c, 1);
      c.k = Format::kBf16;
      expect_same_bytes(c, 1);
      c.v = Format::kE4m3PerHead;
      expect_same_bytes(c, 1);
    }
  }
}

TEST(StoreKvCuda, ManyTokens) {
  KV_NEEDS_DEVICE();
  Case c;
  c.k = c.v = Format::kE4m3PerTokenHead;
  c.heads = 8;
  c.block_size = 64;
  c.slots.clear();
  for (int64_t i = 0; i < 380; ++i) c.slots.push_back(i * 77 % 384);
  expect_same_bytes(c, 2);
}

// Rotating on the way writes what rope() followed by store_kv() writes.
TEST(StoreKvCuda, RotatesKeysOnTheWay) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerTokenHead}) {
    for (const int64_t dim : {64, 96, 128, 256}) {
      Case c;
      c.dim = dim;
      std::mt19937 rng(4);
      const size_t count = c.slots.size() * static_cast<size_t>(c.heads * dim);
      const auto k = random_bf16(rng, count, 1), v = random_bf16(rng, count, 1);
      std::vector<double> inv_freq;
      for (int64_t i = 0; i < dim / 2; ++i)
        inv_freq.push_back(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
      const RopeTable table(inv_freq, 1, 100);
      const std::vector<int32_t> positions = {0, 1, 99, 50, 7, 3};
      const auto tokens = static_cast<int64_t>(c.slots.size());

      std::vector<float> wide(count);
      for (size_t i = 0; i < count; ++i) wide[i] = bf16::decode(k[i]);
      std::vector<uint16_t> rotated(count);
      StoreKvParams p;
      p.k = TensorView::contiguous(rotated.data(), DType::kBF16, {tokens, c.heads, dim});
      rope(TensorView::contiguous(wide.data(), DType::kF32, {tokens, c.heads, dim}), {}, positions,
           table, p.k);
      KvCache cache({{c.heads, dim, 0}}, {{format, format}}, 16, 6, PageOrder::kNhd);
      const DevicePages pages(cache.layer(0));
      p.v = p.k;
      p.v.data = const_cast<uint16_t*>(v.data());
      p.slot_mapping = c.slots;
      p.cache = cache.layer(0);
      store_kv(p, Device::kCpu);

      const size_t rows = static_cast<size_t>(table.max_positions() * dim / 2);
      const auto device_k = to_device(k.data(), count), device_v = to_device(v.data(), count),
                 slots = to_device(c.slots.data(), c.slots.size()),
                 where = to_device(positions.data(), positions.size()),
                 cos = to_device(table.cos(0), rows), sin = to_device(table.sin(0), rows);
      cuda::StoreKvArgs a;
      a.k = device_k.as<const uint16_t>();
      a.v = device_v.as<const uint16_t>();
      a.k_token_stride = a.v_token_stride = c.heads * dim;
      a.k_head_stride = a.v_head_stride = dim;
      a.slot_mapping = slots.as<const int64_t>();
      a.num_tokens = tokens;
      a.cache = pages.view();
      a.rope = {cos.as<const float>(), sin.as<const float>(), where.as<const int32_t>()};
      EXPECT_NE(cuda::store_kv(a, nullptr).find("/rope"), std::string::npos);
      const size_t bytes = static_cast<size_t>(p.cache.num_blocks * p.cache.block_stride);
      const auto written = to_host<uint8_t>(pages.view().data, bytes);
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(written[i], p.cache.data[i]) << name(format) << " dim " << dim << " byte " << i;
      }
    }
  }
}

TEST(StoreKvCuda, RefusesWhatItDoesNotSupport) {
  KV_NEEDS_DEVICE();
  KvCache cache({{2, 64, 0}}, {{Format::kBf16, Format::kBf16}}, 16, 6, PageOrder::kCpu);
  const std::vector<int64_t> slots = {1};
  const std::vector<uint16_t> x(128);
  StoreKvParams p;
  p.k = p.v = TensorView::contiguous(x.data(), DType::kBF16, {1, 2, 64});
  p.slot_mapping = slots;
  p.cache = cache.layer(0);
  EXPECT_THROW(store_kv(p, Device::kCuda), ValueError);  // host memory
  p.k.device = p.v.device = Device::kCuda;
  EXPECT_THROW(store_kv(p, Device::kCuda), UnsupportedError);
}

}  // namespace
}  // namespace kv
