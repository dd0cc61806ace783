// The scalar conversions against tables of every value, against recorded results of other
// libraries, and against published examples.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/e5m2.h"
#include "numeric/f16.h"
#include "tests/numeric/reference.h"

namespace {

using namespace kv;

template <class T>
std::vector<T> golden(const std::string& name) {
  const std::string path = KV_SOURCE_DIR "/tests/golden/numeric/" + name;
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_FALSE(bytes.empty()) << path;
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// One of the two FP8 formats, so that every test below runs on both.
struct Fp8 {
  const char* name;
  uint8_t (*encode)(float, Rounding);
  float (*decode)(uint8_t);
  const TableFormat& table;
  int first_nan;

  uint8_t expected(float x, Rounding rounding) const {
    const int sign = std::signbit(x) ? 0x80 : 0;
    if (std::isnan(x)) return static_cast<uint8_t>(sign | 0x7f);
    return static_cast<uint8_t>(sign | table.nearest(x, rounding));
  }
};

class EachFp8 : public testing::TestWithParam<Fp8> {};

INSTANTIATE_TEST_SUITE_P(
    Format, EachFp8,
    testing::Values(Fp8{"e4m3", e4m3::encode, e4m3::decode, e4m3_table(), 0x7f},
                    Fp8{"e5m2", e5m2::encode, e5m2::decode, e5m2_table(), 0x7d}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(EachFp8, EveryCodeDecodesToItsValue) {
  const Fp8& format = GetParam();
  for (int code = 0; code < 256; ++code) {
    const float x = format.decode(static_cast<uint8_t>(code));
    const int magnitude = code & 0x7f;
    EXPECT_EQ(std::signbit(x), code >= 0x80) << code;
    if (magnitude <= format.table.largest_code()) {
      EXPECT_EQ(std::abs(x), format.table.value(magnitude)) << code;
    } else if (magnitude < format.first_nan) {
      EXPECT_TRUE(std::isinf(x)) << code;
    } else {
      EXPECT_TRUE(std::isnan(x)) << code;
    }
  }
}

TEST_P(EachFp8, EveryFiniteCodeSurvivesDecodeThenEncode) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) > GetParam().table.largest_code()) continue;
    for (const Rounding rounding : kBothRoundings) {
      EXPECT_EQ(GetParam().encode(GetParam().decode(static_cast<uint8_t>(code)), rounding), code);
    }
  }
}

TEST_P(EachFp8, EncodesEveryBf16AsTheTableDoes) {
  for (const Rounding rounding : kBothRoundings) {
    for (uint32_t upper = 0; upper < 65536; ++upper) {
      const float x = bf16::decode(static_cast<uint16_t>(upper));
      ASSERT_EQ(GetParam().encode(x, rounding), GetParam().expected(x, rounding)) << x;
    }
  }
}

TEST_P(EachFp8, EncodesEveryTieAndItsNeighboursAsTheTableDoes) {
  const TableFormat& table = GetParam().table;
  for (int code = 0; code < table.largest_code(); ++code) {
    const auto tie = static_cast<float>((table.value(code) + table.value(code + 1)) / 2);
    ASSERT_EQ(GetParam().encode(tie, Rounding::kNearestEven), (code + 1) / 2 * 2) << tie;
    ASSERT_EQ(GetParam().encode(tie, Rounding::kTruncate), code) << tie;
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInf)}) {
      for (const Rounding rounding : kBothRoundings) {
        ASSERT_EQ(GetParam().encode(x, rounding), GetParam().expected(x, rounding)) << x;
        ASSERT_EQ(GetParam().encode(-x, rounding), GetParam().expected(-x, rounding)) << -x;
      }
    }
  }
}

TEST_P(EachFp8, EncodesAMillionBitPatternsAsTheTableDoes) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    auto bits = static_cast<uint32_t>(random());
    // Most exponents lie outside both formats; two of three patterns are moved inside.
    if (i % 3 != 0) bits = (bits & 0x807fffff) | ((108 + bits % 37) << 23);
    const auto x = std::bit_cast<float>(bits);
    for (const Rounding rounding : kBothRoundings) {
      ASSERT_EQ(GetParam().encode(x, rounding), GetParam().expected(x, rounding)) << x;
    }
  }
}

TEST_P(EachFp8, SaturatesInfinitiesAndWhatIsTooLarge) {
  const auto largest = static_cast<uint8_t>(GetParam().table.largest_code());
  const auto max = static_cast<float>(GetParam().table.value(largest));
  for (const Rounding rounding : kBothRoundings) {
    for (const float x : {max, std::nextafter(max, kInf), max * 1.04f, max * 2, 1e9f, kInf,
                          std::numeric_limits<float>::max()}) {
      EXPECT_EQ(GetParam().encode(x, rounding), largest) << x;
      EXPECT_EQ(GetParam().encode(-x, rounding), largest | 0x80) << x;
    }
  }
}

TEST_P(EachFp8, NanStaysNanWithItsSign) {
  for (const uint32_t payload : {0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu}) {
    for (const Rounding rounding : kBothRoundings) {
      EXPECT_EQ(GetParam().encode(std::bit_cast<float>(payload), rounding), 0x7f);
      EXPECT_EQ(GetParam().encode(std::bit_cast<float>(payload | 0x80000000), rounding), 0xff);
    }
  }
}

TEST_P(EachFp8, AgreesWithMlDtypes) {
  const std::string name = GetParam().name;
  const auto decoded = golden<float>(name + "_decoded.bin");
  ASSERT_EQ(decoded.size(), 256u);
  for (int code = 0; code < 256; ++code) {
    const float x = GetParam().decode(static_cast<uint8_t>(code));
    EXPECT_EQ(std::isnan(x), std::isnan(decoded[code])) << code;
    if (!std::isnan(x)) {
      EXPECT_EQ(bits_of(x), bits_of(decoded[code])) << code;
    }
  }
  const auto check = [&](const std::vector<float>& x, const std::vector<uint8_t>& codes) {
    ASSERT_EQ(x.size(), codes.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const uint8_t code = GetParam().encode(x[i], Rounding::kNearestEven);
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(decoded[codes[i]]));  // which NaN code is a matter of taste
        continue;
      }
      ASSERT_EQ(code, codes[i]) << x[i];
    }
  };
  std::vector<float> all_bf16(65536);
  for (uint32_t i = 0; i < 65536; ++i) all_bf16[i] = bf16::decode(static_cast<uint16_t>(i));
  check(all_bf16, golden<uint8_t>(name + "_of_all_bf16.bin"));
  check(golden<float>("random_f32.bin"), golden<uint8_t>(name + "_of_random.bin"));
}

TEST(E4m3, RoundsOnceFromF32) {
  // 17.001 lies above the tie of 16 and 18; through F16 it would fall on the tie and become 16.
  EXPECT_EQ(e4m3::encode(17.001f), 0x59);
  EXPECT_EQ(e4m3::encode(17.0f), 0x58);
  EXPECT_EQ(e4m3::encode(17.001f, Rounding::kTruncate), 0x58);
}

TEST(E4m3, CodesAreOfTheFnVariant) {
  EXPECT_EQ(e4m3::decode(0x40), 2.0f);                  // the fnuz variant reads 1
  EXPECT_EQ(bits_of(e4m3::decode(0x80)), 0x80000000u);  // -0, where fnuz has its only NaN
  EXPECT_EQ(e4m3::decode(e4m3::kMaxCode), e4m3::kMax);
  EXPECT_EQ(e4m3::decode(0x01), e4m3::kMinSubnormal);
  EXPECT_EQ(e4m3::decode(0x08), e4m3::kMinNormal);
}

TEST(E4m3, PublishedExamples) {
  const struct {
    float x, stored;
  } examples[] = {{449, 448},
                  {1e9f, 448},
                  {464, 448},
                  {500, 448},
                  {0x1p-10f, 0},
                  {9.765626e-4f, 0x1p-9f},  // the F32 above the tie 2^-10
                  {0.0009f, 0},
                  {0.0146484375f, 0.015625f},
                  {3.3f, 3.25f},
                  {17, 16},
                  {200, 192},
                  {216, 224},
                  {0.1f, 0.1015625f},
                  {1.0f / 3, 0.34375f},
                  {-0.06f, -0.05859375f}};
  for (const auto& [x, stored] : examples) EXPECT_EQ(e4m3::decode(e4m3::encode(x)), stored) << x;
}

TEST(E4m3, IsUsableAtCompileTime) {
  static_assert(e4m3::encode(-3.3f) == 0xc5 && e4m3::decode(0xc5) == -3.25f);
  static_assert(e5m2::encode(3.3f) == 0x43 && e5m2::decode(0x43) == 3.5f);
  static_assert(bf16::decode(bf16::encode(3.3f)) == 3.296875f);
  static_assert(f16::decode(f16::encode(3.3f)) == 3.30078125f);
}

// ---- BF16 and F16 ----

/// The bits that a conversion must give: the table's for numbers, quieted upper bits for NaN.
uint16_t expected_half(float x, const TableFormat& table, uint32_t nan) {
  const uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return static_cast<uint16_t>(sign | nan);
  return static_cast<uint16_t>(sign | table.nearest(x, Rounding::kNearestEven));
}

uint16_t expected_bf16(float x) {
  return expected_half(x, bf16_table(), ((bits_of(x) >> 16) & 0x7fff) | 0x40);
}

uint16_t expected_f16(float x) {
  return expected_half(x, f16_table(), 0x7e00 | ((bits_of(x) >> 13) & 0x3ff));
}

TEST(Bf16, EveryValueIsTheUpperHalfOfAnF32AndSurvives) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float x = bf16::decode(static_cast<uint16_t>(half));
    ASSERT_EQ(bits_of(x), half << 16);
    ASSERT_EQ(bf16::encode(x), std::isnan(x) ? half | 0x40 : half);
    if (!std::isnan(x)) {
      ASSERT_EQ(std::abs(x), std::isinf(x) ? kInf : bf16_table().value(half & 0x7fff));
    }
  }
}

TEST(Bf16, EveryTieAndItsNeighbours) {
  for (int code = 0; code < bf16_table().largest_code(); ++code) {
    const double middle = (bf16_table().value(code) + bf16_table().value(code + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle);
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInf)}) {
      ASSERT_EQ(bf16::encode(x), expected_bf16(x)) << x;
      ASSERT_EQ(bf16::encode(-x), expected_bf16(-x)) << x;
    }
  }
}

TEST(F16, EveryValueDecodesAndSurvives) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float x = f16::decode(static_cast<uint16_t>(half));
    const uint32_t magnitude = half & 0x7fff;
    ASSERT_EQ(std::signbit(x), half >= 0x8000);
    if (magnitude > 0x7c00) {
      ASSERT_TRUE(std::isnan(x));
      ASSERT_EQ(bits_of(x) & 0x7fffff, 0x400000 | ((half & 0x3ff) << 13));
      ASSERT_EQ(f16::encode(x), half | 0x200);
    } else {
      ASSERT_EQ(std::abs(x), magnitude == 0x7c00 ? kInf : f16_table().value(magnitude));
      ASSERT_EQ(f16::encode(x), half);
    }
  }
}

TEST(F16, EveryTieAndItsNeighbours) {
  for (int code = 0; code < f16_table().largest_code(); ++code) {
    const auto tie =
        static_cast<float>((f16_table().value(code) + f16_table().value(code + 1)) / 2);
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInf)}) {
      ASSERT_EQ(f16::encode(x), expected_f16(x)) << x;
      ASSERT_EQ(f16::encode(-x), expected_f16(-x)) << x;
    }
  }
}

TEST(HalfFormats, AMillionBitPatterns) {
  std::mt19937 random(2);
  for (int i = 0; i < 1000000; ++i) {
    auto bits = static_cast<uint32_t>(random());
    if (i % 2 != 0) bits = (bits & 0x807fffff) | ((100 + bits % 46) << 23);  // around F16's range
    const auto x = std::bit_cast<float>(bits);
    ASSERT_EQ(bf16::encode(x), expected_bf16(x)) << x;
    ASSERT_EQ(f16::encode(x), expected_f16(x)) << x;
  }
}

TEST(HalfFormats, AgreeWithMlDtypesAndNumpy) {
  const auto x = golden<float>("random_f32.bin");
  const auto bf16_codes = golden<uint16_t>("random_bf16.bin");
  const auto f16_codes = golden<uint16_t>("random_f16.bin");
  ASSERT_EQ(x.size(), bf16_codes.size());
  ASSERT_EQ(x.size(), f16_codes.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) continue;
    ASSERT_EQ(bf16::encode(x[i]), bf16_codes[i]) << x[i];
    ASSERT_EQ(f16::encode(x[i]), f16_codes[i]) << x[i];
  }
}

TEST(Bf16, RoundUpIsTheSmallestNotBelow) {
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(random()) % 0x7f7f0001u);
    const float up = bf16::round_up(x);
    ASSERT_EQ(bits_of(up) & 0xffff, 0u);
    ASSERT_GE(up, x);
    const uint32_t code = bits_of(up) >> 16;
    if (code > 0) {
      ASSERT_LT(bf16::decode(static_cast<uint16_t>(code - 1)), x);
    }
  }
  EXPECT_EQ(bf16::round_up(0.0f), 0.0f);
  EXPECT_EQ(bf16::round_up(1.0f), 1.0f);
  EXPECT_EQ(bf16::round_up(std::nextafter(1.0f, 2.0f)), 1.0078125f);
  EXPECT_EQ(bf16::round_up(std::numeric_limits<float>::max()), kInf);
}

TEST(Bf16, AScaleRoundedUpNeverClipsItsOwnAmax) {
  // Holds in exact arithmetic, although amax / 448 is itself rounded, perhaps down: where the
  // quotient falls onto a BF16, half its last place is less than the amax's last place over 448.
  std::mt19937 random(4);
  for (int i = 0; i < 300000; ++i) {
    const auto upper = static_cast<uint32_t>((60 + random() % 130) << 23 | (random() & 0x7f0000));
    const float scale = std::bit_cast<float>(upper);
    float amax = scale * 448;  // exact: 8 bits times 3 bits
    for (int step = static_cast<int>(random() % 3); step > 0; --step) {
      amax = std::nextafter(amax, kInf);
    }
    ASSERT_LE(static_cast<double>(amax), 448.0 * bf16::round_up(amax / e4m3::kMax)) << amax;
  }
}

}  // namespace
