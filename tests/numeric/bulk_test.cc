// The bulk conversions on every SIMD target of this machine, forced in turn, against the scalar
// ones.

#include "numeric/bulk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "numeric/simd.h"
#include "tests/numeric/reference.h"

namespace {

using namespace kv;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Restores the automatic choice, and fails if the forced target is not the one that runs.
class EveryTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    force_simd_target(GetParam());
    ASSERT_EQ(active_simd_target(), GetParam());
  }
  void TearDown() override {
    EXPECT_EQ(active_simd_target(), GetParam());
    force_simd_target("");
  }
};

INSTANTIATE_TEST_SUITE_P(Machine, EveryTarget, testing::ValuesIn(simd_targets()),
                         [](const auto& test) { return test.param; });

/// Numbers of all kinds: around E4M3's range, any bit pattern, and the special ones.
std::vector<float> mixed_numbers(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const float special[] = {0.0f,
                           -0.0f,
                           kInf,
                           -kInf,
                           kNan,
                           -kNan,
                           448.0f,
                           464.0f,
                           448.001f,
                           0x1p-10f,
                           0x1p-9f,
                           17.0f,
                           17.001f,
                           1e9f,
                           -1e9f,
                           0x1p-6f,
                           0x1p-127f,
                           0x1p-149f,
                           65520.0f,
                           3.4e38f,
                           std::bit_cast<float>(0x7f800001u),
                           std::bit_cast<float>(0xffbfffffu)};
  std::vector<float> x(n);
  for (float& v : x) {
    const auto bits = static_cast<uint32_t>(random());
    switch (random() % 4) {
      case 0:
        v = special[bits % std::size(special)];
        break;
      case 1:
        v = std::bit_cast<float>(bits);
        break;
      default:
        v = std::bit_cast<float>((bits & 0x807fffff) | ((114 + bits % 24) << 23));
    }
  }
  return x;
}

/// What an encode must give, element by element, from the scalar code.
struct Expected {
  std::vector<uint8_t> codes;
  EncodeCounts counts;

  Expected(const float* x, size_t n, Rounding rounding, const std::function<float(float)>& scaled) {
    for (size_t i = 0; i < n; ++i) {
      const float y = scaled(x[i]);
      const uint8_t code = e4m3::encode(y, rounding);
      codes.push_back(code);
      counts.nan += std::isnan(y) ? 1 : 0;
      counts.saturated += std::abs(y) > 448 ? 1 : 0;
      counts.flushed += x[i] != 0 && (code & 0x7f) == 0 ? 1 : 0;
    }
  }
};

/// Runs f(input pointer, output pointer, n) for every n up to 130 (two 64-code groups and a rest on
/// the widest target) at several misalignments. The input ends where its allocation ends, so that
/// an address sanitizer sees a read past it; bytes around the output must stay as they were.
template <class In, class Out>
void for_all_sizes(const std::vector<In>& input,
                   const std::function<void(const In*, Out*, size_t)>& f,
                   const std::function<void(const In*, const Out*, size_t)>& check) {
  constexpr size_t kGuard = 70;
  constexpr auto kPattern = static_cast<Out>(0x5a);
  for (size_t n = 0; n <= 130; ++n) {
    for (size_t offset = 0; offset < 4; ++offset) {
      const size_t first = (n * 7 + offset * 131) % (input.size() - n);
      std::vector<In> in(offset, In{});
      in.insert(in.end(), input.begin() + first, input.begin() + first + n);
      in.shrink_to_fit();
      std::vector<Out> out(kGuard + n + kGuard, kPattern);
      Out* begin = out.data() + kGuard - offset;
      f(in.data() + offset, begin, n);
      check(in.data() + offset, begin, n);
      for (Out* p = out.data(); p < out.data() + out.size(); ++p) {
        if (p >= begin && p < begin + n) continue;

        ASSERT_EQ(*p, kPattern) << "n " << n << " at " << p - begin;
      }
    }
  }
}

TEST_P(EveryTarget, EncodesAllSizesLikeTheScalarCode) {
  for (const Rounding rounding : kBothRoundings) {
    // 0.1f is inexact, so that division and multiplication by its inverse differ; 1e-40f and 1e30f
    // drive the quotients into infinity and into F32's subnormals.
    for (const float scale : {1.0f, 0.1f, 3.7f, 1e-40f, 1e30f}) {
      const auto input = mixed_numbers(1000, 11);
      EncodeCounts counts;
      for_all_sizes<float, uint8_t>(
          input,
          [&](auto x, auto codes, size_t n) { counts = e4m3_encode(x, codes, n, scale, rounding); },
          [&](auto x, auto codes, size_t n) {
            const Expected expected(x, n, rounding, [&](float v) { return v / scale; });
            ASSERT_EQ(std::vector<uint8_t>(codes, codes + n), expected.codes) << n;
            ASSERT_EQ(counts, expected.counts) << n;
          });
    }
  }
}

TEST_P(EveryTarget, EncodesMultipliedAllSizesLikeTheScalarCode) {
  for (const Rounding rounding : kBothRoundings) {
    for (const float factor : {1.0f, 0.1f, 448.0f, 1e6f, 1e-30f, 1e38f}) {
      EncodeCounts counts;
      for_all_sizes<float, uint8_t>(
          mixed_numbers(1000, 12),
          [&](auto x, auto codes, size_t n) {
            counts = e4m3_encode_multiplied(x, codes, n, factor, rounding);
          },
          [&](auto x, auto codes, size_t n) {
            const Expected expected(x, n, rounding, [&](float v) { return v * factor; });
            ASSERT_EQ(std::vector<uint8_t>(codes, codes + n), expected.codes) << n;
            ASSERT_EQ(counts, expected.counts) << n;
          });
    }
  }
}

TEST_P(EveryTarget, EncodesAMillionNumbersLikeTheScalarCode) {
  const auto x = mixed_numbers(1000003, 13);
  std::vector<uint8_t> codes(x.size());
  for (const Rounding rounding : kBothRoundings) {
    const EncodeCounts counts = e4m3_encode(x.data(), codes.data(), x.size(), 1.0f, rounding);
    const Expected expected(x.data(), x.size(), rounding, [](float v) { return v; });
    EXPECT_EQ(counts, expected.counts);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(codes[i], expected.codes[i]) << x[i];
  }
}

TEST_P(EveryTarget, EncodesEveryTieLikeTheScalarCode) {
  std::vector<float> x;
  for (int code = 0; code < 0x7e; ++code) {
    const float low = e4m3::decode(static_cast<uint8_t>(code));
    const float tie = (low + e4m3::decode(static_cast<uint8_t>(code + 1))) / 2;  // exact
    for (const float v : {low, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInf)}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  std::vector<uint8_t> codes(x.size());
  for (const Rounding rounding : kBothRoundings) {
    e4m3_encode(x.data(), codes.data(), x.size(), 1.0f, rounding);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(codes[i], e4m3::encode(x[i], rounding)) << x[i];
  }
}

TEST_P(EveryTarget, DecodesAllCodesAtAllSizes) {
  std::vector<uint8_t> input(512);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<uint8_t>(i * 5);
  for_all_sizes<uint8_t, float>(input, e4m3_decode, [](auto codes, auto x, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(bits_of(x[i]), bits_of(e4m3::decode(codes[i]))) << int{codes[i]} << " n " << n;
    }
  });
  std::vector<float> x(input.size());
  e4m3_decode(input.data(), x.data(), input.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(x[i]), bits_of(e4m3::decode(input[i]))) << int{input[i]};
  }
}

TEST_P(EveryTarget, DecodesEveryBf16AndF16) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i * 40503);
  std::vector<float> x(halves.size());
  bf16_decode(halves.data(), x.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(x[i]), bits_of(bf16::decode(halves[i]))) << halves[i];
  }
  f16_decode(halves.data(), x.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(x[i]), bits_of(f16::decode(halves[i]))) << halves[i];
  }
  for_all_sizes<uint16_t, float>(halves, bf16_decode, [](auto in, auto out, size_t n) {
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(bits_of(out[i]), bits_of(bf16::decode(in[i])));
  });
  for_all_sizes<uint16_t, float>(halves, f16_decode, [](auto in, auto out, size_t n) {
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(bits_of(out[i]), bits_of(f16::decode(in[i])));
  });
}

TEST_P(EveryTarget, EncodesBf16LikeTheScalarCode) {
  const auto check = [](auto in, auto out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(out[i], bf16::encode(in[i])) << bits_of(in[i]) << " at " << i << " of " << n;
    }
  };
  for_all_sizes<float, uint16_t>(mixed_numbers(1000, 14), bf16_encode, check);
  // Every BF16, and every tie with its neighbours. Subnormals come in runs of their own here, among
  // other numbers above: both sides of the instruction that would flush them.
  std::vector<float> x;
  for (uint32_t half = 0; half < 65536; ++half) {
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(half << 16 | lower));
    }
  }
  std::vector<uint16_t> halves(x.size());
  bf16_encode(x.data(), halves.data(), x.size());
  check(x.data(), halves.data(), x.size());
}

TEST_P(EveryTarget, MaxAbsPassesOverNanAndInfinity) {
  for_all_sizes<float, float>(
      mixed_numbers(1000, 15),
      [](auto x, auto largest, size_t n) {
        if (n > 0) *largest = max_abs(x, n);
        if (n > 1) std::fill(largest + 1, largest + n, *largest);
      },
      [](auto x, auto largest, size_t n) {
        float expected = 0;
        for (size_t i = 0; i < n; ++i) {
          if (std::isfinite(x[i])) expected = std::max(expected, std::abs(x[i]));
        }
        if (n == 0) return;
        ASSERT_EQ(*largest, expected) << n;
      });
  EXPECT_EQ(max_abs(nullptr, 0), 0.0f);
  const std::vector<float> none(33, kNan);
  EXPECT_EQ(max_abs(none.data(), none.size()), 0.0f);
  // Each place of a vector and of the rest after it counts.
  for (size_t place = 0; place < 67; ++place) {
    std::vector<float> x(67, -1.0f);
    x[place] = -2.5f;
    x[(place + 1) % 67] = -kInf;
    EXPECT_EQ(max_abs(x.data(), x.size()), 2.5f) << place;
  }
}

TEST_P(EveryTarget, CountsWhatItHadToChange) {
  const std::vector<float> x = {kInf, -kInf, kNan, 1e9f, 500, 449, 448, 0, -0.0f, 0x1p-10f, 0.002f};
  std::vector<uint8_t> codes(x.size());
  const auto counts = e4m3_encode(x.data(), codes.data(), x.size(), 1.0f, Rounding::kNearestEven);
  EXPECT_EQ(counts, (EncodeCounts{.saturated = 5, .flushed = 1, .nan = 1}));
  const std::vector<uint8_t> stored = {0x7e, 0xfe, 0x7f, 0x7e, 0x7e, 0x7e, 0x7e, 0, 0x80, 0, 0x01};
  EXPECT_EQ(codes, stored);
  // 0.0019 lies between 0 and the smallest code, 2^-9 = 0.00195: nearest keeps it, truncation does
  // not.
  const float small = 0.0019f;
  EXPECT_EQ(e4m3_encode(&small, codes.data(), 1, 1.0f, Rounding::kNearestEven).flushed, 0);
  EXPECT_EQ(e4m3_encode(&small, codes.data(), 1, 1.0f, Rounding::kTruncate).flushed, 1);
}

TEST_P(EveryTarget, AScaleDividesWhatIsStored) {
  // Both by hand: stored = value / scale, so a reciprocal mix-up cannot hide in a round trip.
  uint8_t code = 0;
  const float large = 448, one = 1;
  e4m3_encode(&large, &code, 1, 2.0f, Rounding::kNearestEven);
  EXPECT_EQ(code, 0x76);  // 224
  e4m3_encode(&one, &code, 1, 0.5f, Rounding::kNearestEven);
  EXPECT_EQ(code, 0x40);  // 2
  e4m3_encode_multiplied(&one, &code, 1, 2.0f, Rounding::kNearestEven);
  EXPECT_EQ(code, 0x40);
}

TEST(Bulk, RefusesScalesThatAreNoScales) {
  const float x = 1;
  uint8_t code = 0xaa;
  for (const float bad : {0.0f, -1.0f, kInf, kNan}) {
    EXPECT_THROW(e4m3_encode(&x, &code, 1, bad, Rounding::kNearestEven), ValueError) << bad;
    EXPECT_THROW(e4m3_encode_multiplied(&x, &code, 1, bad, Rounding::kNearestEven), ValueError);
  }
  EXPECT_EQ(code, 0xaa);
}

TEST(Bulk, CountsAddUp) {
  EncodeCounts sum{1, 2, 3};
  sum += {10, 20, 30};
  EXPECT_EQ(sum, (EncodeCounts{11, 22, 33}));
}

TEST(SimdTargets, AreListedBestFirstAndTheBestIsTheDefault) {
  const auto names = simd_targets();
  ASSERT_FALSE(names.empty());
  force_simd_target("");
  EXPECT_EQ(active_simd_target(), names.front());
  EXPECT_EQ(names.back(), "scalar");
  force_simd_target("scalar");
  EXPECT_EQ(simd_targets(), names);  // the list does not depend on what is forced
  force_simd_target("");
}

TEST(SimdTargets, HoldEverythingThatThisProcessorRuns) {
  const auto names = simd_targets();
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_EQ(has("avx2"), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(has("avx3"), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(has("avx3_bf16"), has("avx3_dl") && __builtin_cpu_supports("avx512bf16"));
  EXPECT_TRUE(has("avx3_bf16") || !has(kAmxName.data()));
}

TEST(SimdTargets, AnUnknownOneIsRefusedWithTheListOfThoseThere) {
  try {
    force_simd_target("neon");
    FAIL() << "forced a target that this machine lacks";
  } catch (const UnsupportedError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("\"neon\""), std::string::npos) << text;
    for (const std::string& name : simd_targets()) {
      EXPECT_NE(text.find(name), std::string::npos) << text;
    }
  }
  EXPECT_EQ(active_simd_target(), simd_targets().front());
}

TEST(SimdTargets, Bf16InstructionsAreAllowedOnlyWhereNothingLowerIsForced) {
  for (const std::string& name : simd_targets()) {
    force_simd_target(name);
    EXPECT_EQ(avx512_bf16_allowed(), name == "avx3_bf16" || name == kAmxName) << name;
    EXPECT_EQ(amx_allowed(), name == kAmxName) << name;
  }
  force_simd_target("");
}

}  // namespace
