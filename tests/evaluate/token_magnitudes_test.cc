#include "evaluate/token_magnitudes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kv {
namespace {

/// Magnitudes 2^(power of the position's logarithm), as BF16 has them where they are powers of two.
std::vector<float> growing(double power, int64_t first, int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<float>(std::pow(static_cast<double>(first + i + 1), power)));
  }
  return out;
}

TEST(TokenMagnitudes, TheSlopeIsThePowerOfThePosition) {
  TokenMagnitudes tokens;
  tokens.add(0, 0, growing(1.5, 0, 300));
  EXPECT_NEAR(tokens.slope().slope, 1.5, 1e-6);
  EXPECT_EQ(tokens.slope().p, 1) << "one sequence says nothing about others";
}

TEST(TokenMagnitudes, ChunksAndReusedNumbersChangeNothing) {
  TokenMagnitudes whole, pieces;
  for (const double power : {0.1, 0.3, -0.2}) {
    whole.add(7, 0, growing(power, 0, 64));
    whole.end_sequence(7);
    for (int64_t first = 0; first < 64; first += 16)
      pieces.add(7, first, growing(power, first, 16));
    pieces.end_sequence(7);
  }
  EXPECT_EQ(whole.slope().slope, pieces.slope().slope);
  EXPECT_EQ(whole.slope().p, pieces.slope().p);
  EXPECT_EQ(whole.spread(), pieces.spread());
  // Slopes 0.1, 0.3, -0.2: mean 1/15, sd 0.251661; t 0.458831 with 2 degrees of freedom.
  EXPECT_NEAR(whole.slope().slope, 1.0 / 15, 1e-6);
  const double t = (1.0 / 15) / (0.2516611478423583 / std::sqrt(3.0));
  EXPECT_NEAR(whole.slope().p, 0.5 - t / (2 * std::sqrt(2 + t * t)), 1e-6) << "closed form, 2 df";
}

TEST(TokenMagnitudes, SequencesThatRunSideBySideStayApart) {
  TokenMagnitudes tokens;
  for (int64_t first = 0; first < 40; first += 8) {
    tokens.add(1, first, growing(0.5, first, 8));
    tokens.add(2, first, growing(0.25, first, 8));
  }
  EXPECT_NEAR(tokens.slope().slope, 0.375, 1e-6);
}

TEST(TokenMagnitudes, SpreadIsThe99thPercentileOverTheMedian) {
  TokenMagnitudes tokens;
  EXPECT_EQ(tokens.spread(), 1);
  std::vector<float> values(101, 1.0f);
  for (size_t i = 99; i < 101; ++i) values[i] = 256;  // rank 99 of 0 to 100 is the 99th percentile
  tokens.add(0, 0, values);
  EXPECT_EQ(tokens.spread(), 256);
  tokens.add(1, 0, std::vector<float>(100, 1.0f));
  EXPECT_EQ(tokens.spread(), 1) << "2 of 201 lie beyond it";
}

TEST(TokenMagnitudes, ZerosAndWhatIsNotFiniteAreNoSlope) {
  TokenMagnitudes tokens;
  std::vector<float> values = growing(1, 0, 32);
  values[3] = 0;
  values[9] = std::numeric_limits<float>::quiet_NaN();
  values[10] = std::numeric_limits<float>::infinity();
  tokens.add(0, 0, values);
  EXPECT_NEAR(tokens.slope().slope, 1, 1e-6);
  tokens.end_sequence(5);  // never begun
  TokenMagnitudes zeros;
  zeros.add(0, 0, std::vector<float>(10, 0.0f));
  zeros.add(1, 0, {1, 2});  // too short for a line
  EXPECT_EQ(zeros.slope().slope, 0);
  EXPECT_EQ(zeros.slope().p, 1);
  EXPECT_EQ(zeros.spread(), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace kv
