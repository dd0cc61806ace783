#include "ops/attend.h"

#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "numeric/simd.h"
#include "tests/ops/paged_case.h"

namespace kv {
namespace {

constexpr Format kAllFormats[] = {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead,
                                  Format::kE4m3PerTokenHead};

std::vector<float> run(const PagedCase& c, void (*change)(AttendParams&) = nullptr) {
  std::vector<float> out;
  AttendParams p = c.params(out);
  if (change != nullptr) change(p);
  attend(p, Device::kCpu);
  return out;
}

std::vector<float> run_ref(const PagedCase& c, void (*change)(AttendParams&) = nullptr) {
  std::vector<float> out;
  AttendParams p = c.params(out);
  if (change != nullptr) change(p);
  attend_ref(p);
  return out;
}

/// Scores of these cases stay under 40, so F32 products and sums over head_dim <= 256 terms move
/// them by less than 256 * 2^-24 * 40 / 2 = 3e-4 in the worst case and 2e-5 typically; the weights
/// move by that much, relatively, and the result by as much of the values' size.
void expect_close(const std::vector<float>& out, const std::vector<float>& ref, float value_size,
                  const char* what) {
  ASSERT_EQ(out.size(), ref.size());
  float worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << what << " element " << i;
    if (std::fabs(out[i] - ref[i]) > worst) worst = std::fabs(out[i] - ref[i]), at = i;
  }
  EXPECT_LT(worst, 5e-5f * value_size)
      << what << " element " << at << " is " << out[at] << ", reference " << ref[at];
}

TEST(Attend, EveryFormatOrderAndBlockSizeMatchesTheReference) {
  for (const Format format : kAllFormats) {
    for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd, PageOrder::kCpu}) {
      for (const int64_t block_size : {1, 16, 61, 128}) {
        PagedCase::Options o;
        o.k = o.v = format;
        o.order = order;
        o.block_size = block_size;
        o.seq_lens = {70, 0, 1, 200};
        o.queries = {70, 0, 1, 5};
        const PagedCase c(o);
        expect_close(run(c), run_ref(c), 4, name(format).data());
      }
    }
  }
}

TEST(Attend, KeyAndValueFormatsMayDiffer) {
  for (const Format k : kAllFormats) {
    for (const Format v : kAllFormats) {
      PagedCase::Options o;
      o.k = k;
      o.v = v;
      o.k_sigma = 0.5f;
      o.v_sigma = 20;
      const PagedCase c(o);
      expect_close(run(c), run_ref(c), 80, name(k).data());
    }
  }
}

TEST(Attend, GeometryGrid) {
  for (const int64_t head_dim : {40, 64, 80, 96, 112, 128, 192, 256}) {
    for (const int64_t q_per_kv : {1, 4, 7, 16}) {
      PagedCase::Options o;
      o.k = o.v = Format::kE4m3PerTokenHead;
      o.head_dim = head_dim;
      o.q_per_kv = q_per_kv;
      o.num_kv_heads = head_dim == 256 ? 1 : 2;
      o.seq_lens = {67};
      o.queries = {3};
      const PagedCase c(o);
      expect_close(run(c), run_ref(c), 4, "head_dim");
    }
  }
}

TEST(Attend, EveryTargetOfThisMachineRunsAndAgrees) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerHead;
  o.seq_lens = {130, 64};
  o.queries = {130, 1};
  const PagedCase c(o);
  const auto ref = run_ref(c);
  for (const std::string& target : simd_targets()) {
    force_simd_target(target);
    std::vector<float> out;
    const KernelUsed used = attend(c.params(out), Device::kCpu);
    EXPECT_NE(used.name.find("/" + target + "/"), std::string::npos) << used.name;
    expect_close(out, ref, 4, target.c_str());
  }
  force_simd_target("");
}

// Flash tiles, online rescaling and page borders: an error would jump at some length.
TEST(Attend, EveryLengthFrom1To1025) {
  PagedCase::Options o;
  o.num_kv_heads = 1;
  o.q_per_kv = 1;
  o.head_dim = 16;
  o.k = o.v = Format::kE4m3PerTensor;
  o.seq_lens = {1025};
  o.queries = {1025};
  const PagedCase c(o);
  expect_close(run(c), run_ref(c), 4, "all lengths in one prefill");
  for (int32_t len = 1; len <= 1025; len += 31) {
    PagedCase::Options one = o;
    one.seq_lens = {len};
    one.queries = {1};
    const PagedCase d(one);
    expect_close(run(d), run_ref(d), 4, "decode");
  }
}

TEST(Attend, WindowAndSoftCap) {
  PagedCase::Options o;
  o.seq_lens = {300};
  o.queries = {200};
  const PagedCase c(o);
  const auto windowed = [](AttendParams& p) { p.window = 64; };
  const auto capped = [](AttendParams& p) { p.soft_cap = 5; };
  expect_close(run(c, windowed), run_ref(c, windowed), 4, "window");
  expect_close(run(c, capped), run_ref(c, capped), 4, "soft cap");
  EXPECT_NE(run(c, windowed), run(c));
  EXPECT_NE(run(c, capped), run(c));
}

TEST(Attend, ErrorDoesNotGrowWithTheContext) {
  for (const int32_t len : {1024, 8192, 131072}) {
    PagedCase::Options o;
    o.num_kv_heads = 1;
    o.q_per_kv = 1;
    o.head_dim = 16;
    o.block_size = 64;
    o.k = o.v = Format::kE4m3PerTensor;
    o.k_sigma = 1e-3f;  // near-equal scores: every key counts
    o.seq_lens = {len};
    o.queries = {1};
    PagedCase c(o);
    const auto out = run(c), ref = run_ref(c);
    double error = 0, size = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      error += std::pow(out[i] - ref[i], 2);
      size += std::pow(ref[i], 2);
    }
    EXPECT_LT(std::sqrt(error / size), 1e-4) << len;
  }
}

// ---- bit for bit: batch, chunking, page order ----

TEST(Attend, ResultDoesNotDependOnChunkingBatchOrBlockOrder) {
  for (const Format format : kAllFormats) {
    PagedCase::Options o;
    o.k = o.v = format;
    o.seq_lens = {150, 90};
    o.queries = {150, 90};
    const PagedCase whole(o);
    const auto all = run(whole);
    const int64_t row = o.num_kv_heads * o.q_per_kv * o.head_dim;
    for (const int32_t chunk : {1, 16, 63, 64, 65}) {
      std::vector<float> out;
      AttendParams p = whole.params(out);
      std::vector<float> pieced(static_cast<size_t>(150 * row));
      for (int32_t first = 0; first < 150; first += chunk) {
        const int32_t count = std::min(chunk, 150 - first);
        const std::vector<int32_t> lens = {first + count}, start = {0, count};
        AttendParams part = p;
        part.seq_lens = lens;
        part.query_start = start;
        part.block_table.sizes[0] = 1;
        part.q.data = const_cast<uint16_t*>(whole.q.data()) + first * row;
        part.out.data = pieced.data() + first * row;
        part.q.sizes[0] = part.out.sizes[0] = count;
        attend(part, Device::kCpu);
      }
      EXPECT_EQ(std::memcmp(pieced.data(), all.data(), pieced.size() * sizeof(float)), 0)
          << name(format) << " chunk " << chunk;
    }
  }
}

TEST(Attend, BlockSizeAndOrderOfBytesDoNotChangeABit) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerTokenHead;
  o.seq_lens = {150};
  o.queries = {20};
  const auto first = run(PagedCase(o));
  for (const PageOrder order : {PageOrder::kNhd, PageOrder::kCpu}) {
    for (const int64_t block_size : {16, 61}) {
      PagedCase::Options other = o;
      other.order = order;
      other.block_size = block_size;
      PagedCase c(other);
      c.q = PagedCase(o).q;
      c.rng.seed(o.seed);
      const PagedCase same(o);
      // Same tokens in other pages.
      c.k = same.k;
      c.v = same.v;
      std::vector<int64_t> slots;
      for (int32_t t = 0; t < 150; ++t) slots.push_back(c.slot(0, t));
      StoreKvParams p;
      p.k = TensorView::contiguous(c.k.data(), DType::kBF16, {150, o.num_kv_heads, o.head_dim});
      p.v = TensorView::contiguous(c.v.data(), DType::kBF16, {150, o.num_kv_heads, o.head_dim});
      p.slot_mapping = slots;
      p.cache = c.cache->layer(0);
      store_kv(p, Device::kCpu);
      const auto out = run(c);
      EXPECT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0) << block_size;
    }
  }
}

TEST(Attend, SplitKeysAgreeWithOnePass) {
  PagedCase::Options o;
  o.seq_lens = {700};
  o.queries = {3};
  const PagedCase c(o);
  const auto split = [](AttendParams& p) { p.keys_per_split = 128; };
  expect_close(run(c, split), run_ref(c), 4, "split");
  EXPECT_EQ(run(c, split), run(c, split));
}

TEST(Attend, FillOfUnusedSlotsDoesNotMatter) {
  for (const Format format : kAllFormats) {
    PagedCase::Options o;
    o.k = o.v = format;
    o.seq_lens = {17};
    o.queries = {17};
    const PagedCase c(o);
    const auto poisoned = run(c);
    const CacheView& view = c.cache->layer(0);
    std::vector<bool> used(static_cast<size_t>(view.num_blocks * view.page.block_size), false);
    for (int32_t t = 0; t < 17; ++t) used[static_cast<size_t>(c.slot(0, t))] = true;
    for (int64_t slot = 0; slot < view.num_blocks * view.page.block_size; ++slot) {
      if (used[static_cast<size_t>(slot)]) continue;
      for (const Side s : kSides) {
        const SideLayout& side = view.page.side(s);
        for (int64_t head = 0; head < view.page.num_kv_heads; ++head) {
          for (int64_t d = 0; d < view.page.head_dim; ++d) {
            std::memset(view.block(slot / 16) + side.byte(head, slot % 16, d), 0,
                        static_cast<size_t>(value_bytes(format)));
          }
        }
      }
    }
    const auto zeroed = run(c);
    EXPECT_EQ(std::memcmp(poisoned.data(), zeroed.data(), zeroed.size() * sizeof(float)), 0)
        << name(format);
  }
}

TEST(Attend, AVisibleNanReachesTheResult) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerTensor;
  const PagedCase c(o);
  const CacheView& view = c.cache->layer(0);
  const int64_t slot = c.slot(0, 5);
  view.block(slot / 16)[view.page.side(Side::kK).byte(0, slot % 16, 3)] = 0x7f;
  const auto out = run(c);
  const int64_t row = o.num_kv_heads * o.q_per_kv * o.head_dim;
  EXPECT_TRUE(std::isfinite(out[static_cast<size_t>(4 * row)]));  // position 4 does not see it
  EXPECT_TRUE(std::isnan(out[static_cast<size_t>(10 * row)]));
}

TEST(Attend, AWrongScaleChangesTheOutput) {
  for (const Format format : {Format::kE4m3PerTensor, Format::kE4m3PerHead}) {
    PagedCase::Options o;
    o.k = o.v = format;
    PagedCase c(o);
    const auto right = run(c);
    for (float& s : c.k_scale) s *= 2;
    const auto wrong_k = run(c);
    for (float& s : c.k_scale) s /= 2;
    for (float& s : c.v_scale) s *= 2;
    const auto wrong_v = run(c);
    EXPECT_NE(right, wrong_k);
    ASSERT_EQ(right.size(), wrong_v.size());
    for (size_t i = 0; i < right.size(); ++i) EXPECT_EQ(wrong_v[i], 2 * right[i]);
  }
}

// ---- refusals ----

std::string refusal(void (*change)(AttendParams&)) {
  const PagedCase c(PagedCase::Options{});
  std::vector<float> out;
  AttendParams p = c.params(out);
  change(p);
  try {
    attend(p, Device::kCpu);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Attend, RefusalsNameTheArgument) {
  static std::vector<int32_t> lens = {32}, far = {64}, start = {0, 33};
  EXPECT_EQ(refusal([](AttendParams& p) { p.seq_lens = lens; }),
            "attend: sequence 0: expected 0 to seq_len = 32 queries, found 33");
  EXPECT_EQ(refusal([](AttendParams& p) { p.seq_lens = far; }),
            "attend: sequence 0: 64 tokens need 4 blocks, block_table has 3 columns");
  EXPECT_EQ(refusal([](AttendParams& p) { p.q.sizes[2] = 32; }),
            "attend: q: expected head_dim = 64 (from the request), found 32");
  EXPECT_EQ(refusal([](AttendParams& p) { p.math = Math::kFp8; }),
            "attend: needed math=fp8, the cpu twin supports math=bf16");
  EXPECT_EQ(refusal([](AttendParams& p) { p.keys_per_split = 100; }),
            "attend: keys_per_split: the cpu twin needs a multiple of 64, found 100");
}

}  // namespace
}  // namespace kv
