#include "ops/attend.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
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

/// Whether the kernel that runs now rounds probabilities to BF16.
bool rounds_probabilities() {
  const PagedCase c(PagedCase::Options{});
  std::vector<float> out;
  const std::string name = attend(c.params(out), Device::kCpu).name;
  return name.ends_with("/bf16_dot") || name.ends_with("/" + std::string(kAmxName));
}

/// Scores of these cases stay under 40, so F32 products and sums over head_dim <= 256 terms move
/// them by less than 256 * 2^-24 * 40 / 2 = 3e-4 in the worst case and 2e-5 typically; the weights
/// move by that much, relatively, and the result by as much of the values' size, which is four
/// times their standard deviation.
///
/// Probabilities in BF16, 8 bits of precision, are off by up to 2^-8 each, and the result, a mean
/// of the values weighted by them, by up to 2^-8 of the largest value. Over many results these
/// errors are independent of the values: a rounded number's relative error has a deviation of 0.42
/// * 2^-8, so the result's is under 2^-9 of the values'.
void expect_close(const std::vector<float>& out, const std::vector<float>& ref, float value_size,
                  const char* what) {
  ASSERT_EQ(out.size(), ref.size());
  double worst = 0, squares = 0;
  size_t at = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << what << " element " << i;
    const double error = std::fabs(out[i] - ref[i]);
    if (error > worst) worst = error, at = i;
    squares += error * error;
  }
  const double f32 = 5e-5 * value_size;
  const bool is_rounded = rounds_probabilities();
  EXPECT_LT(worst, f32 + (is_rounded ? value_size / 256 : 0))
      << what << " element " << at << " is " << out[at] << ", reference " << ref[at];
  const double deviation = std::sqrt(squares / static_cast<double>(out.size()));
  EXPECT_LT(deviation, f32 + (is_rounded ? value_size / 4 / 512 : 0)) << what;
}

/// Every test runs on the best target and, where that one rounds probabilities, on the next too,
/// which computes in F32.
class Attend : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_simd_target(GetParam()); }
  void TearDown() override { force_simd_target(""); }
};

std::vector<std::string> tested_targets() {
  std::vector<std::string> targets = simd_targets();
  targets.resize(std::min<size_t>(targets.size(), rounds_probabilities() ? 2 : 1));
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Targets, Attend, testing::ValuesIn(tested_targets()),
                         [](const auto& tested) { return tested.param; });

TEST_P(Attend, EveryFormatOrderAndBlockSizeMatchesTheReference) {
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

TEST_P(Attend, KeyAndValueFormatsMayDiffer) {
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

TEST_P(Attend, GeometryGrid) {
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

TEST(AttendTargets, EveryTargetOfThisMachineRunsAndAgrees) {
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
    const bool is_bf16_dot = target == "avx3_bf16" && __builtin_cpu_is("amd");
    const std::string by = target == kAmxName ? target : is_bf16_dot ? "bf16_dot" : "f32";
    EXPECT_TRUE(used.name.ends_with("/planes/" + by)) << used.name;
    expect_close(out, ref, 4, target.c_str());
  }
  force_simd_target("");
}

// Flash tiles, online rescaling and page borders: an error would jump at some length.
TEST_P(Attend, EveryLengthFrom1To1025) {
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

// Every probability is 1 before the division, which BF16 holds: what is left is what the pairing of
// keys and values and the sums in F32 do, 2^-24 a term.
TEST_P(Attend, EqualScoresGiveTheMeanOfTheValues) {
  for (const Format k : kAllFormats) {
    for (const Format v : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead}) {
      for (const PageOrder order : {PageOrder::kNhd, PageOrder::kCpu}) {
        for (const int64_t head_dim : {40, 112}) {
          for (const int64_t block_size : {61, 64}) {
            PagedCase::Options o;
            o.k = k;
            o.v = v;
            o.order = order;
            o.head_dim = head_dim;
            o.block_size = block_size;
            o.num_kv_heads = 1;
            o.seq_lens = {131};
            o.queries = {3};
            o.k_sigma = 1e-20f;
            const PagedCase c(o);
            const auto out = run(c), ref = run_ref(c);
            for (size_t i = 0; i < out.size(); ++i) {
              ASSERT_NEAR(out[i], ref[i], 131 * 4 * 0x1p-24)
                  << name(k) << "," << name(v) << " " << i;
            }
          }
        }
      }
    }
  }
}

// Keys and queries so large that one key takes all the weight: its value comes out, to the bit
// where the format has no inline scale that would be rounded.
TEST_P(Attend, ADominantKeyGivesItsValue) {
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead}) {
    PagedCase::Options o;
    o.k = o.v = format;
    o.k_sigma = 4096;
    o.seq_lens = {200};
    o.queries = {200};
    const PagedCase c(o);
    const auto out = run(c), ref = run_ref(c);
    size_t exact = 0;
    for (size_t i = 0; i < out.size(); ++i) exact += out[i] == ref[i];
    EXPECT_GT(exact, out.size() * 9 / 10) << name(format);
  }
}

TEST_P(Attend, WindowAndSoftCap) {
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

void with_window_and_cap(AttendParams& p) {
  p.window = 40;  // begins and ends inside tiles and blocks
  p.soft_cap = 5;
}
void with_sinks(AttendParams& p) {
  // Under, among and far above the scores; one of no weight.
  static const std::vector<float> sinks = {-3, 0,  2,
                                           8,  60, -std::numeric_limits<float>::infinity()};
  p.sinks = sinks;
}
void with_all_of_them(AttendParams& p) {
  with_window_and_cap(p);
  with_sinks(p);
  p.keys_per_split = 128;
}

/// Heads of 256 as Gemma has them, every format, pages smaller and larger than the window.
TEST_P(Attend, WindowsCapsAndSinksInLargeHeads) {
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenHead}) {
    for (const auto& [order, block] : {std::pair{PageOrder::kCpu, 64}, {PageOrder::kNhd, 16}}) {
      PagedCase::Options o;
      o.k = o.v = format;
      o.order = order;
      o.block_size = block;
      o.head_dim = 256;
      o.seq_lens = {300, 1, 170};
      o.queries = {12, 1, 1};
      const PagedCase c(o);
      expect_close(run(c, with_window_and_cap), run_ref(c, with_window_and_cap), 4, "window, cap");
      expect_close(run(c, with_all_of_them), run_ref(c, with_all_of_them), 4, "all, split");
    }
  }
}

/// What lies before every query's window is as good as gone: its slots may hold NaN.
TEST_P(Attend, KeysBeforeTheWindowDoNotMatter) {
  for (const Format format : {Format::kBf16, Format::kE4m3PerTokenHead}) {
    for (const int32_t length : {300, 301}) {  // the window begins at either key of a pair
      PagedCase::Options o;
      o.k = o.v = format;
      o.seq_lens = {length};
      o.queries = {3};
      o.block_size = 1;
      PagedCase c(o);
      const auto expected = run(c, with_window_and_cap);
      const CacheView& view = c.cache->layer(0);
      for (int32_t t = 0; t < length - 3 - 40 + 1; ++t)
        std::memset(view.block(c.slot(0, t)), 0xff, static_cast<size_t>(view.page.page_bytes));
      EXPECT_EQ(run(c, with_window_and_cap), expected);
      std::memset(view.block(c.slot(0, length - 3 - 40 + 1)), 0xff,
                  static_cast<size_t>(view.page.page_bytes));
      EXPECT_NE(run(c, with_window_and_cap), expected) << "the first key of the window";
    }
  }
}

TEST_P(Attend, ResultsWithWindowsAndSinksDoNotDependOnChunking) {
  PagedCase::Options o;
  o.head_dim = 256;
  o.seq_lens = {200};
  o.queries = {200};
  const PagedCase c(o);
  const auto change = [](AttendParams& p) {
    with_window_and_cap(p);
    with_sinks(p);
  };
  const auto whole = run(c, change);
  std::vector<float> out;
  AttendParams p = c.params(out);
  change(p);
  const auto row = static_cast<int64_t>(whole.size()) / 200;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 90}, {91, 109}}) {
    const std::vector<int32_t> lens = {first + count}, start = {0, count};
    AttendParams part = p;
    part.q.data = p.q.as<uint16_t>() + first * row;
    part.out.data = p.out.as<float>() + first * row;
    part.q.sizes[0] = part.out.sizes[0] = count;
    part.seq_lens = lens;
    part.query_start = start;
    attend(part, Device::kCpu);
  }
  EXPECT_EQ(out, whole);
}

TEST_P(Attend, ErrorDoesNotGrowWithTheContext) {
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
    // Values of mean 0, so a result has the size of its weights' norm times the values' deviation;
    // rounding each weight by up to 2^-8 gives an error of the same norm, at most 2^-8 of it.
    EXPECT_LT(std::sqrt(error / size), 1e-4 + (rounds_probabilities() ? 1.0 / 256 : 0)) << len;
  }
}

// ---- bit for bit: batch, chunking, page order ----

TEST_P(Attend, ResultDoesNotDependOnChunkingBatchOrBlockOrder) {
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

// Long sequences are computed in parts, which one thread or several take.
TEST_P(Attend, PartsOfALongSequenceDoNotDependOnChunkingOrThreads) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerTokenHead;
  o.seq_lens = {1100};
  o.queries = {90};
  const PagedCase c(o);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto all = run(c);
  expect_close(all, run_ref(c), 4, "parts");
  omp_set_num_threads(3);
  EXPECT_EQ(run(c), all);
  std::vector<float> out;
  AttendParams last = c.params(out);
  const int64_t row = o.num_kv_heads * o.q_per_kv * o.head_dim;
  const std::vector<int32_t> start = {0, 1};
  last.query_start = start;
  last.q.data = const_cast<uint16_t*>(c.q.data()) + 89 * row;
  last.q.sizes[0] = last.out.sizes[0] = 1;
  attend(last, Device::kCpu);
  EXPECT_EQ(std::memcmp(out.data(), all.data() + 89 * row, static_cast<size_t>(row) * 4), 0);
  omp_set_num_threads(threads);
}

TEST_P(Attend, BlockSizeAndOrderOfBytesDoNotChangeABit) {
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

TEST_P(Attend, SplitKeysAgreeWithOnePass) {
  PagedCase::Options o;
  o.seq_lens = {700};
  o.queries = {3};
  const PagedCase c(o);
  const auto split = [](AttendParams& p) { p.keys_per_split = 128; };
  expect_close(run(c, split), run_ref(c), 4, "split");
  EXPECT_EQ(run(c, split), run(c, split));
}

TEST_P(Attend, FillOfUnusedSlotsDoesNotMatter) {
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

TEST(AttendTargets, AVisibleNanReachesTheResult) {
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenHead}) {
    PagedCase::Options o;
    o.k = o.v = format;
    const PagedCase c(o);
    const CacheView& view = c.cache->layer(0);
    const int64_t slot = c.slot(0, 5);
    const uint8_t nan[2] = {uint8_t(is_fp8(format) ? 0x7f : 0xff), 0x7f};
    std::memcpy(view.block(slot / 16) + view.page.side(Side::kK).byte(0, slot % 16, 3), nan,
                static_cast<size_t>(value_bytes(format)));
    const int64_t row = o.num_kv_heads * o.q_per_kv * o.head_dim;
    for (const std::string& target : simd_targets()) {
      force_simd_target(target);
      const auto out = run(c);
      EXPECT_TRUE(std::isfinite(out[static_cast<size_t>(4 * row)]))
          << "position 4 does not see it, " << target;
      EXPECT_TRUE(std::isnan(out[static_cast<size_t>(10 * row)])) << target;
    }
    force_simd_target("");
  }
}

TEST_P(Attend, AWrongScaleChangesTheOutput) {
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

TEST(AttendRefusals, EveryOneNamesTheArgument) {
  static std::vector<int32_t> lens = {32}, far = {64}, start = {0, 33};
  EXPECT_EQ(refusal([](AttendParams& p) { p.seq_lens = lens; }),
            "attend: sequence 0: expected 0 to seq_len = 32 queries, found 33");
  EXPECT_EQ(refusal([](AttendParams& p) { p.seq_lens = far; }),
            "attend: sequence 0: 64 tokens need 4 blocks, block_table has 3 columns");
  EXPECT_EQ(refusal([](AttendParams& p) { p.q.sizes[2] = 32; }),
            "attend: q: expected head_dim = 64 (from the request), found 32");
  EXPECT_EQ(refusal([](AttendParams& p) { p.keys_per_split = 100; }),
            "attend: keys_per_split: the cpu twin needs a multiple of 64, found 100");
}

// ---- math=fp8
// ------------------------------------------------------------------------------------

void in_fp8_math(AttendParams& p) { p.math = Math::kFp8; }

/// As a query comes out of E4M3 with a power of two as scale, its largest magnitude in [128, 256).
void round_queries(PagedCase& c) {
  const auto dim = static_cast<size_t>(c.o.head_dim);
  for (size_t row = 0; row < c.q.size(); row += dim) {
    double largest = 0;
    for (size_t d = 0; d < dim; ++d) {
      largest = std::max<double>(largest, std::fabs(bf16::decode(c.q[row + d])));
    }
    const double scale = std::exp2(std::floor(std::log2(largest)) - 7);
    for (size_t d = 0; d < dim; ++d) {
      const auto scaled = static_cast<float>(bf16::decode(c.q[row + d]) / scale);
      c.q[row + d] = bf16::encode(static_cast<float>(e4m3::decode(e4m3::encode(scaled)) * scale));
    }
  }
}

/// One query per sequence over one tile of keys, in double, with the weights rounded to E4M3 times
/// 2^8. E4M3 per tensor on both sides.
std::vector<double> weights_through_e4m3(const PagedCase& c) {
  const auto dim = static_cast<size_t>(c.o.head_dim),
             kv_heads = static_cast<size_t>(c.o.num_kv_heads);
  const auto heads = kv_heads * static_cast<size_t>(c.o.q_per_kv);
  const auto stored = [](uint16_t x, float scale) {
    return static_cast<double>(e4m3::decode(e4m3::encode(bf16::decode(x) / scale))) * scale;
  };
  std::vector<double> out;
  size_t first = 0;  // token of the sequence, in k and v
  for (size_t s = 0; s < c.o.seq_lens.size(); ++s) {
    const auto keys = static_cast<size_t>(c.o.seq_lens[s]);
    for (size_t head = 0; head < heads; ++head) {
      const size_t kv = head / static_cast<size_t>(c.o.q_per_kv);
      std::vector<double> p(keys);
      for (size_t t = 0; t < keys; ++t) {
        for (size_t d = 0; d < dim; ++d) {
          p[t] += bf16::decode(c.q[(s * heads + head) * dim + d]) *
                  stored(c.k[((first + t) * kv_heads + kv) * dim + d], c.k_scale[kv]);
        }
        p[t] /= std::sqrt(static_cast<double>(dim));
      }
      const double largest = std::ranges::max(p);
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x - largest);
      for (size_t d = 0; d < dim; ++d) {
        double value = 0;
        for (size_t t = 0; t < keys; ++t) {
          const double weight = e4m3::decode(e4m3::encode(static_cast<float>(p[t] * 256))) / 256.0;
          value += weight * stored(c.v[((first + t) * kv_heads + kv) * dim + d], c.v_scale[kv]);
        }
        out.push_back(value / sum);
      }
    }
    first += keys;
  }
  return out;
}

double rms_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

TEST_P(Attend, Fp8MathRoundsTheWeightsAsE4m3Does) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerTensor;
  o.seq_lens = {64, 17, 40, 2, 63};
  o.queries = {1, 1, 1, 1, 1};
  PagedCase c(o);
  for (float* scale : {c.k_scale.data(), c.v_scale.data()}) scale[1] = scale[0];
  round_queries(c);
  const std::vector<float> out = run(c, in_fp8_math);
  const std::vector<double> expected = weights_through_e4m3(c);
  const std::vector<float> unrounded = run_ref(c);
  ASSERT_EQ(out.size(), expected.size());
  // A weight at the middle of two codes may go either way; the mean over all results shows few did.
  // Values have a deviation of 1; all weights unrounded are 1 % of it away (E4M3: 2^-5 / sqrt(3) of
  // each weight, over some ten keys that matter).
  const double from_rounded = rms_difference(out, expected);
  const double from_unrounded =
      rms_difference(out, std::vector<double>(unrounded.begin(), unrounded.end()));
  EXPECT_LT(from_rounded, 1e-3);
  EXPECT_GT(from_unrounded, 4e-3);
  std::vector<float> named;
  AttendParams p = c.params(named);
  p.math = Math::kFp8;
  EXPECT_NE(attend(p, Device::kCpu).name.find("/math=fp8"), std::string::npos);
}

TEST_P(Attend, Fp8MathRoundsTheQueriesFirst) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerHead;
  o.seq_lens = {70, 200};
  o.queries = {70, 3};
  PagedCase c(o);
  const std::vector<float> out = run(c, in_fp8_math);
  EXPECT_NE(out, run(c));
  round_queries(c);
  EXPECT_EQ(out, run(c, in_fp8_math));
}

TEST_P(Attend, Fp8MathLeavesWhatIsStoredInBf16Alone) {
  PagedCase::Options o;
  const PagedCase both(o);
  EXPECT_EQ(run(both, in_fp8_math), run(both));
  o.k = Format::kE4m3PerTensor;
  PagedCase keys(o);
  const std::vector<float> out = run(keys, in_fp8_math);
  EXPECT_NE(out, run(keys));
  round_queries(keys);
  EXPECT_EQ(out, run(keys)) << "only the queries are rounded";
}

TEST(AttendFp8Math, OverInlineScalesIsRefused) {
  PagedCase::Options o;
  o.v = Format::kE4m3PerTokenHead;
  const PagedCase c(o);
  EXPECT_THROW(run(c, in_fp8_math), UnsupportedError);
}

TEST_P(Attend, Fp8MathShowsANanOfAQuery) {
  PagedCase::Options o;
  o.k = o.v = Format::kE4m3PerTensor;
  PagedCase c(o);
  c.q[5] = 0x7fc0;
  const std::vector<float> out = run(c, in_fp8_math);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_TRUE(std::isfinite(out[out.size() - 1]));
}

}  // namespace
}  // namespace kv
