#include <cstring>
#include <memory>
#include <random>

#include "cuda/decode.h"
#include "cuda/store_kv.h"
#include "numeric/e4m3.h"
#include "tests/cuda/attend_case.h"

namespace kv {
namespace {

PagedCase::Options decode_options(Format format, std::vector<int32_t> lens) {
  PagedCase::Options o;
  o.k = o.v = format;
  o.order = PageOrder::kNhd;
  o.head_dim = 128;
  o.q_per_kv = 4;
  o.queries.assign(lens.size(), 1);
  for (size_t s = 0; s < lens.size(); ++s) o.queries[s] = lens[s] > 0 ? 1 : 0;
  o.seq_lens = std::move(lens);
  return o;
}

void expect_matches(const PagedCase& c, const Change& change = nullptr, int64_t pad = 0) {
  const AttendResult r = run(c, change, pad);
  expect_close(r.out, run_ref(c, change), tolerance(c.o.k, Math::kBf16, 5 * c.o.v_sigma), r.name);
}

const std::vector<int32_t> kLengths = {1, 0, 15, 16, 17, 127, 128, 129, 400};
const Change kBalanced = [](AttendParams& p) { p.batch_invariant = false; };

TEST(DecodeCuda, EveryFormatOrderBlockSizeAndPlan) {
  KV_NEEDS_DEVICE();
  for (const Format format : kAllFormats) {
    for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd}) {
      for (const int64_t block_size : {16, 32, 48, 64}) {
        auto o = decode_options(format, kLengths);
        o.order = order;
        o.block_size = block_size;
        const PagedCase c(o);
        expect_matches(c);
        expect_matches(c, kBalanced, 8);
        expect_matches(c, [](AttendParams& p) { p.keys_per_split = 128; });
      }
    }
  }
}

TEST(DecodeCuda, HeadDimsGroupsAndHeads) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerHead, Format::kE4m3PerTokenHead}) {
    for (const int64_t dim : {64, 96, 128, 256}) {
      for (const int64_t group : {1, 2, 5, 8, 9, 16}) {
        for (const int64_t heads : {1, 2, 3, 8, 10, 16}) {
          if (heads > 3 && group % 4 != 0) continue;
          auto o = decode_options(format, {1, 65, 200});
          o.head_dim = dim;
          o.q_per_kv = group;
          o.num_kv_heads = heads;
          o.order = group % 2 == 0 ? PageOrder::kNhd : PageOrder::kHnd;
          expect_matches(PagedCase(o), kBalanced);
        }
      }
    }
  }
}

TEST(DecodeCuda, EveryLengthFrom1To1025) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenHead}) {
    std::vector<int32_t> lens;
    for (int32_t len = 1; len <= 1025; ++len) lens.push_back(len);
    auto o = decode_options(format, lens);
    o.num_kv_heads = 1;
    o.q_per_kv = 1;
    o.head_dim = 64;
    const PagedCase c(o);
    expect_matches(c, kBalanced);
    expect_matches(c);
  }
}

TEST(DecodeCuda, WindowSoftCapAndSinks) {
  KV_NEEDS_DEVICE();
  const std::vector<float> sinks = {3, -2, 0, 5, 1, 2, -30, 8};
  for (const Format format : kAllFormats) {
    const PagedCase c(decode_options(format, {300, 17, 1, 64, 1000}));
    for (const bool invariant : {true, false}) {
      for (const int window : {1, 16, 64, 100}) {
        expect_matches(c, [&](AttendParams& p) {
          p.window = window;
          p.batch_invariant = invariant;
        });
      }
      expect_matches(c, [&](AttendParams& p) {
        p.soft_cap = 5;
        p.batch_invariant = invariant;
      });
      const Change with_sinks = [&](AttendParams& p) {
        p.sinks = sinks;
        p.batch_invariant = invariant;
      };
      expect_matches(c, with_sinks);
      EXPECT_NE(run(c, with_sinks).out, run(c).out);
    }
  }
}

TEST(DecodeCuda, ErrorDoesNotGrowWithTheContext) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenHead}) {
    for (const int32_t len : {1024, 8192, 131072}) {
      auto o = decode_options(format, {len});
      o.num_kv_heads = 1;
      o.q_per_kv = 1;
      o.head_dim = 64;
      o.block_size = 64;
      o.k_sigma = 1e-3f;  // near-equal scores: every key counts
      const PagedCase c(o);
      const auto ref = run_ref(c);
      for (const bool invariant : {true, false}) {
        const auto out = run(c, [&](AttendParams& p) { p.batch_invariant = invariant; }).out;
        double error = 0, size = 0;
        for (size_t i = 0; i < out.size(); ++i) {
          error += std::pow(out[i] - ref[i], 2);
          size += std::pow(ref[i], 2);
        }
        // Near-equal weights round alike, so their error cancels in out = sum / sum only in part.
        EXPECT_LT(std::sqrt(error / size), is_fp8(format) ? 1e-3 : 8e-3) << name(format) << len;
      }
    }
  }
}

// Scales of the tokens spread over 2^20: the unit that V's weights are kept in moves.
TEST(DecodeCuda, InlineScalesOfManySizes) {
  KV_NEEDS_DEVICE();
  PagedCase c(decode_options(Format::kE4m3PerTokenHead, {500}));
  const CacheView& view = c.cache->layer(0);
  for (int32_t t = 0; t < 500; ++t) {
    const int64_t slot = c.slot(0, t);
    for (int64_t h = 0; h < 2; ++h) {
      const float scale = std::ldexp(1.0f, (t * 7) % 21 - 18) / 448;
      std::memcpy(view.block(slot / 16) + view.page.side(Side::kV).scale_byte(h, slot % 16), &scale,
                  4);
    }
  }
  const AttendResult r = run(c);
  expect_close(r.out, run_ref(c), tolerance(c.o.k, Math::kBf16, 4), r.name);
}

TEST(DecodeCuda, QueriesOfManySizes) {
  KV_NEEDS_DEVICE();
  for (const float size : {1e-20f, 1e-3f, 60.0f, 1e20f}) {
    PagedCase c(decode_options(Format::kE4m3PerHead, {77}));
    for (uint16_t& x : c.q) x = bf16::encode(bf16::decode(x) * size);
    const Change unscaled = [&](AttendParams& p) { p.softmax_scale /= size; };
    const AttendResult r = run(c, unscaled);
    expect_close(r.out, run_ref(c, unscaled), tolerance(c.o.k, Math::kBf16, 5), r.name);
  }
}

TEST(DecodeCuda, Fp8MathRoundsQueriesAndWeightsOnly) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kE4m3PerTensor, Format::kE4m3PerHead}) {
    for (const int64_t group : {4, 16}) {
      auto o = decode_options(format, kLengths);
      o.q_per_kv = group;
      PagedCase c(o);
      // Queries that E4M3 holds up to a power of two: then only the weights are rounded.
      for (uint16_t& x : c.q) {
        x = bf16::encode(e4m3::decode(e4m3::encode(bf16::decode(x) * 32)) / 32);
      }
      const Change fp8 = [](AttendParams& p) {
        p.math = Math::kFp8;
        p.batch_invariant = false;
      };
      const AttendResult r = run(c, fp8);
      EXPECT_NE(r.name.find("math=fp8"), std::string::npos) << r.name;
      expect_close(r.out, run_ref(c), tolerance(format, Math::kFp8, 4), r.name);
      EXPECT_NE(r.out, run(c, kBalanced).out);
    }
  }
}

TEST(DecodeCuda, BitsDoNotDependOnTheBatchOrTheBlocks) {
  KV_NEEDS_DEVICE();
  for (const Format format : kAllFormats) {
    const PagedCase c(decode_options(format, {700, 33, 20000, 1}));
    const size_t row = c.q.size() / 4;
    for (const int split : {0, 256}) {
      const auto all = run(c, [&](AttendParams& p) { p.keys_per_split = split; });
      EXPECT_NE(all.name.find(split == 0 ? "keys_all" : "keys256"), std::string::npos) << all.name;
      for (size_t s = 0; s < 4; ++s) {
        const std::vector<int32_t> lens = {c.o.seq_lens[s]}, start = {0, 1};
        const auto alone = run(c, [&](AttendParams& p) {
          p.keys_per_split = split;
          p.seq_lens = lens;
          p.query_start = start;
          p.block_table.data =
              const_cast<int32_t*>(c.table.data()) + s * static_cast<size_t>(c.max_blocks);
          p.block_table.sizes[0] = 1;
          p.q.data = const_cast<uint16_t*>(c.q.data()) + s * row;
          p.q.sizes[0] = p.out.sizes[0] = 1;
        });
        EXPECT_EQ(std::memcmp(alone.out.data(), all.out.data() + s * row, row * sizeof(float)), 0)
            << name(format) << " split " << split << " sequence " << s;
      }
    }
    EXPECT_EQ(run(c, kBalanced).out, run(c, kBalanced).out) << "the same call twice";
  }
}

/// A decode step of one layer as a model makes it: the newest keys and values are written by the
/// launch right before.
class AppendedStep {
 public:
  explicit AppendedStep(const PagedCase& c)
      : c_(c),
        seqs_(c.o.seq_lens.size()),
        q_(to_device(c.q.data(), c.q.size())),
        table_(to_device(c.table.data(), c.table.size())),
        k_scale_(to_device(c.k_scale.data(), c.k_scale.size())),
        v_scale_(to_device(c.v_scale.data(), c.v_scale.size())) {
    std::mt19937 rng(11);
    const auto newest = random_bf16(rng, seqs_ * static_cast<size_t>(row()), 1);
    newest_ = to_device(newest.data(), newest.size());
    std::vector<int64_t> slots;
    std::vector<int32_t> rows;
    for (size_t s = 0; s < seqs_; ++s) {
      slots.push_back(c.slot(s, c.o.seq_lens[s] - 1));
      rows.push_back(static_cast<int32_t>(s));
    }
    slots_ = to_device(slots.data(), slots.size());
    cuda::DecodePlanOptions options;
    options.blocks = cuda::device_info().num_sms;
    const CacheView& view = c.cache->layer(0);
    run_ = std::make_unique<cuda::DecodeRun>(
        cuda::plan_decode(
            cuda::decode_shape(view.page, view.block_stride, cuda::device_info().shared_bytes),
            c.o.seq_lens, rows, options),
        c.o.q_per_kv, c.o.head_dim, nullptr);
  }

  /// Two launches, or three, and no waiting.
  void launch(const CacheView& pages, float* out, int fresh_keys, cuda::StreamHandle stream) const {
    cuda::StoreKvArgs store;
    store.k = store.v = newest_.as<const uint16_t>();
    store.k_token_stride = store.v_token_stride = row();
    store.k_head_stride = store.v_head_stride = c_.o.head_dim;
    store.slot_mapping = slots_.as<const int64_t>();
    store.num_tokens = static_cast<int64_t>(seqs_);
    store.cache = pages;
    store.k_scale = k_scale_.as<const float>();
    store.v_scale = v_scale_.as<const float>();
    cuda::store_kv(store, stream);
    cuda::DecodeArgs a;
    a.q = q_.as<const uint16_t>();
    a.q_row_stride = a.out_row_stride = row() * c_.o.q_per_kv;
    a.q_head_stride = a.out_head_stride = c_.o.head_dim;
    a.out = out;
    a.out_is_f32 = true;
    a.cache = pages;
    a.block_table = table_.as<const int32_t>();
    a.table_stride = c_.max_blocks;
    a.k_scale = store.k_scale;
    a.v_scale = store.v_scale;
    a.q_per_kv = c_.o.q_per_kv;
    a.softmax_scale = 0.09f;
    a.fresh_keys = fresh_keys;
    cuda::decode(a, *run_, stream);
  }

 private:
  int64_t row() const { return c_.o.num_kv_heads * c_.o.head_dim; }

  const PagedCase& c_;
  size_t seqs_;
  cuda::DeviceBuffer q_, table_, k_scale_, v_scale_, newest_, slots_;
  std::unique_ptr<cuda::DecodeRun> run_;
};

TEST(DecodeCuda, FreshKeysAreReadAfterTheLaunchThatWritesThem) {
  KV_NEEDS_DEVICE();
  constexpr int kLayers = 12;
  for (const Format format : kAllFormats) {
    const PagedCase c(decode_options(format, {1, 16, 17, 300, 20000, 33}));
    const CacheView& view = c.cache->layer(0);
    for (size_t s = 0; s < c.o.seq_lens.size(); ++s) {  // what is read too early is NaN
      const int64_t slot = c.slot(s, c.o.seq_lens[s] - 1);
      for (int64_t h = 0; h < c.o.num_kv_heads; ++h) {
        for (const Side side : kSides) {
          for (int64_t d = 0; d < c.o.head_dim; ++d) {
            uint8_t* at = view.block(slot / 16) + view.page.side(side).byte(h, slot % 16, d);
            std::memset(at, is_fp8(format) ? 0x7f : 0xff, is_fp8(format) ? 1 : 2);
          }
        }
      }
    }
    const AppendedStep step(c);
    const cuda::Stream stream;
    std::vector<DevicePages> pages;
    for (int layer = 0; layer <= kLayers; ++layer) pages.emplace_back(view);
    cuda::DeviceBuffer out(static_cast<int64_t>(c.q.size() * 4 * (kLayers + 1)));
    cuda::synchronize_device();
    for (int layer = 0; layer <= kLayers; ++layer) {
      step.launch(pages[static_cast<size_t>(layer)].view(),
                  out.as<float>() + layer * static_cast<int64_t>(c.q.size()), layer == 0 ? -1 : 1,
                  stream.handle());
      if (layer == 0) stream.synchronize();
    }
    stream.synchronize();
    const auto all = to_host<float>(out.data(), c.q.size() * (kLayers + 1));
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], all[i % c.q.size()]) << name(format) << " layer " << i / c.q.size();
    }
  }
}

TEST(DecodeCuda, AVisibleNanReachesTheResultAndOnlyIts) {
  KV_NEEDS_DEVICE();
  for (const Side side : kSides) {
    auto o = decode_options(Format::kE4m3PerTensor, {40, 40});
    const PagedCase c(o);
    const CacheView& view = c.cache->layer(0);
    const int64_t slot = c.slot(0, 5);
    view.block(slot / 16)[view.page.side(side).byte(0, slot % 16, 3)] = 0x7f;
    const auto out = run(c).out;
    EXPECT_TRUE(std::isnan(out[3]));
    EXPECT_TRUE(std::isfinite(out[static_cast<size_t>(4 * 128 + 3)]));  // the other KV head
    EXPECT_TRUE(std::isfinite(out[static_cast<size_t>(8 * 128 + 3)]));  // the other sequence
  }
}

TEST(DecodeCuda, OutputInBf16) {
  KV_NEEDS_DEVICE();
  const PagedCase c(decode_options(Format::kE4m3PerHead, {100}));
  std::vector<float> host;
  AttendParams p = c.params(host);
  const auto q = to_device(c.q.data(), c.q.size());
  const cuda::DeviceBuffer out(static_cast<int64_t>(c.q.size() * 2));
  const DevicePages pages(p.cache);
  p.q.data = q.data();
  p.out.data = out.data();
  p.out.dtype = DType::kBF16;
  p.q.device = p.out.device = Device::kCuda;
  p.cache = pages.view();
  const auto f32 = run(c, kBalanced).out;
  p.batch_invariant = false;
  attend(p, Device::kCuda);
  const auto halves = to_host<uint16_t>(out.data(), c.q.size());
  for (size_t i = 0; i < halves.size(); ++i) EXPECT_EQ(halves[i], bf16::encode(f32[i]));
}

std::string refusal(const PagedCase& c, const Change& change) {
  try {
    run(c, change);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DecodeCuda, RefusalsNameWhatIsNeededAndWhatIsSupported) {
  KV_NEEDS_DEVICE();
  const Change fp8 = [](AttendParams& p) { p.math = Math::kFp8; };
  EXPECT_EQ(refusal(PagedCase(decode_options(Format::kBf16, {5})), fp8),
            "attend: cuda supports math=fp8 on e4m3_per_tensor and e4m3_per_head, needed bf16");
  auto wide = decode_options(Format::kE4m3PerHead, {5});
  wide.q_per_kv = 17;
  EXPECT_EQ(refusal(PagedCase(wide), nullptr),
            "attend: cuda supports 1 to 16 query heads per KV head, needed 17");
  auto odd = decode_options(Format::kE4m3PerHead, {5});
  odd.head_dim = 80;
  EXPECT_EQ(refusal(PagedCase(odd), nullptr),
            "attend: cuda supports head_dim 64, 96, 128 and 256, needed 80");
  EXPECT_EQ(refusal(PagedCase(decode_options(Format::kE4m3PerHead, {500})),
                    [](AttendParams& p) { p.keys_per_split = 100; }),
            "attend: keys_per_split: cuda supports multiples of 64 here, needed 100");
}

}  // namespace
}  // namespace kv
