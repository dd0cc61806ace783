#include "cuda/prefill.h"
#include "numeric/e4m3.h"
#include "tests/cuda/attend_case.h"

namespace kv {
namespace {

PagedCase::Options prefill_options(Format format, std::vector<int32_t> lens,
                                   std::vector<int32_t> queries) {
  PagedCase::Options o;
  o.k = o.v = format;
  o.order = PageOrder::kNhd;
  o.head_dim = 128;
  o.q_per_kv = 4;
  o.seq_lens = std::move(lens);
  o.queries = std::move(queries);
  return o;
}

void expect_matches(const PagedCase& c, const Change& change = nullptr, int64_t pad = 0) {
  const AttendResult r = run(c, change, pad);
  EXPECT_NE(r.name.find("prefill_cuda"), std::string::npos) << r.name;
  expect_close(r.out, run_ref(c, change), tolerance(c.o.k, Math::kBf16, 5 * c.o.v_sigma), r.name);
}

// Whole prefills, chunks at the end of a longer cache, single queries and none, in one call.
TEST(PrefillCuda, EveryFormatOrderAndBlockSize) {
  KV_NEEDS_DEVICE();
  for (const Format format : kAllFormats) {
    for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd}) {
      for (const int64_t block_size : {16, 48, 64}) {
        auto o = prefill_options(format, {130, 0, 1, 300, 77, 40}, {130, 0, 1, 5, 1, 33});
        o.order = order;
        o.block_size = block_size;
        expect_matches(PagedCase(o));
        expect_matches(PagedCase(o), nullptr, 8);
      }
    }
  }
}

TEST(PrefillCuda, HeadDimsGroupsAndHeads) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerHead, Format::kE4m3PerTokenHead}) {
    for (const int64_t dim : {64, 96, 128, 256}) {
      for (const int64_t group : {1, 3, 8, 16}) {
        auto o = prefill_options(format, {150, 65}, {150, 9});
        o.head_dim = dim;
        o.q_per_kv = group;
        o.num_kv_heads = group == 3 ? 3 : 2;
        expect_matches(PagedCase(o));
      }
    }
  }
}

TEST(PrefillCuda, LengthsAroundTiles) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenHead}) {
    auto o = prefill_options(format, {}, {});
    for (const int32_t len : {2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257})
      o.seq_lens.push_back(len), o.queries.push_back(len);
    o.num_kv_heads = 1;
    o.head_dim = 64;
    expect_matches(PagedCase(o));
  }
}

TEST(PrefillCuda, WindowSoftCapAndSinks) {
  KV_NEEDS_DEVICE();
  const std::vector<float> sinks = {3, -2, 0, 5, 1, 2, -30, 8};
  for (const Format format : kAllFormats) {
    const PagedCase c(prefill_options(format, {400, 200}, {250, 200}));
    for (const int window : {1, 64, 100}) {
      expect_matches(c, [&](AttendParams& p) { p.window = window; });
    }
    expect_matches(c, [](AttendParams& p) { p.soft_cap = 5; });
    expect_matches(c, [&](AttendParams& p) { p.sinks = sinks; });
  }
}

TEST(PrefillCuda, ErrorDoesNotGrowWithTheContext) {
  KV_NEEDS_DEVICE();
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenHead}) {
    for (const int32_t len : {1024, 131072}) {
      auto o = prefill_options(format, {len}, {2});
      o.num_kv_heads = 1;
      o.q_per_kv = 1;
      o.head_dim = 64;
      o.block_size = 64;
      o.k_sigma = 1e-3f;
      const PagedCase c(o);
      const auto out = run(c).out, ref = run_ref(c);
      double error = 0, size = 0;
      for (size_t i = 0; i < out.size(); ++i) {
        error += std::pow(out[i] - ref[i], 2);
        size += std::pow(ref[i], 2);
      }
      EXPECT_LT(std::sqrt(error / size), is_fp8(format) ? 1e-3 : 8e-3) << name(format) << len;
    }
  }
}

TEST(PrefillCuda, Fp8MathRoundsQueriesAndWeightsOnly) {
  KV_NEEDS_DEVICE();
  PagedCase c(prefill_options(Format::kE4m3PerHead, {300}, {200}));
  for (uint16_t& x : c.q) x = bf16::encode(e4m3::decode(e4m3::encode(bf16::decode(x) * 32)) / 32);
  const AttendResult r = run(c, [](AttendParams& p) { p.math = Math::kFp8; });
  EXPECT_NE(r.name.find("math=fp8"), std::string::npos) << r.name;
  expect_close(r.out, run_ref(c), tolerance(c.o.k, Math::kFp8, 4), r.name);
  EXPECT_NE(r.out, run(c).out);
}

TEST(PrefillCuda, BitsDoNotDependOnChunksOrBatch) {
  KV_NEEDS_DEVICE();
  for (const Format format : kAllFormats) {
    const PagedCase whole(prefill_options(format, {300, 90}, {300, 90}));
    const auto all = run(whole).out;
    const size_t row = all.size() / 390;
    for (const int32_t chunk : {150, 7}) {
      // The first chunk of sequence 0, alone: its rows are the first of q.
      const std::vector<int32_t> lens = {chunk}, start = {0, chunk};
      const auto part = run(whole, [&](AttendParams& p) {
        p.seq_lens = lens;
        p.query_start = start;
        p.block_table.sizes[0] = 1;
        p.q.sizes[0] = p.out.sizes[0] = chunk;
      });
      EXPECT_EQ(std::memcmp(part.out.data(), all.data(),
                            static_cast<size_t>(chunk) * row * sizeof(float)),
                0)
          << name(format) << " chunk " << chunk;
    }
  }
}

}  // namespace
}  // namespace kv
