// Signal to quantization noise of Gaussian data, against published figures: a check of the whole
// conversion on real-looking numbers that no table of codes was used for.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "numeric/bulk.h"

namespace {

using namespace kv;

// One million samples: the mean of the squared error has a relative standard error of about
// sqrt(kurtosis / n), below 0.3 % (0.013 dB) where rounding dominates and below 1.5 % (0.065 dB)
// where the few clipped tails do (at 2^7 about 465 of them). 0.1 dB also covers the figures' own
// last place.
constexpr size_t kSamples = 1000000;
constexpr double kToleranceDb = 0.1;

/// N(0, 1) by Box and Muller, so that the numbers do not depend on the standard library.
std::vector<float> gaussian() {
  std::mt19937_64 random(5);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  std::vector<float> z(kSamples);
  for (size_t i = 0; i < kSamples; i += 2) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    z[i] = static_cast<float>(radius * std::cos(angle));
    z[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return z;
}

struct Measured {
  double sqnr_db;
  double clip_frac;
};

Measured measure(double sigma, float scale) {
  static const std::vector<float> z = gaussian();
  std::vector<float> x(kSamples), decoded(kSamples);
  std::vector<uint8_t> codes(kSamples);
  for (size_t i = 0; i < kSamples; ++i) x[i] = static_cast<float>(sigma * z[i]);
  const auto counts = e4m3_encode(x.data(), codes.data(), kSamples, scale, Rounding::kNearestEven);
  e4m3_decode(codes.data(), decoded.data(), kSamples);
  double signal = 0, noise = 0;
  for (size_t i = 0; i < kSamples; ++i) {
    const double error = static_cast<double>(decoded[i]) * scale - x[i];
    signal += static_cast<double>(x[i]) * x[i];
    noise += error * error;
  }
  return {10 * std::log10(signal / noise), static_cast<double>(counts.saturated) / kSamples};
}

TEST(Sqnr, OfGaussianDataAtScaleOne) {
  const struct {
    double log2_sigma, db;
  } published[] = {{-9, 10.79}, {-8, 16.81},  {-7, 22.83}, {-6, 28.30}, {-5, 30.91}, {-4, 31.44},
                   {-2, 31.52}, {0, 31.52},   {2, 31.52},  {4, 31.52},  {6, 31.52},  {6.5, 31.55},
                   {7, 31.21},  {7.5, 24.90}, {8, 16.21},  {9, 7.04}};
  for (const auto& [log2_sigma, db] : published) {
    EXPECT_NEAR(measure(std::exp2(log2_sigma), 1).sqnr_db, db, kToleranceDb) << log2_sigma;
  }
  // Half a step is uniform within a binade: 10 log10(768 ln 2 / 0.375) = 31.5216.
  EXPECT_NEAR(measure(1, 1).sqnr_db, 10 * std::log10(768 * std::numbers::ln2 / 0.375), 0.03);
}

TEST(Sqnr, ClippedFractionOfGaussianData) {
  // Binomial: 465 and 13,300 of a million, so 4 standard errors are 8.6e-5 and 4.6e-4.
  EXPECT_NEAR(measure(128, 1).clip_frac, 4.65e-4, 8.6e-5);
  EXPECT_NEAR(measure(std::exp2(7.5), 1).clip_frac, 0.0133, 4.6e-4 + 5e-5);
}

TEST(Sqnr, OfASmallHeadUnderALargeHeadsScale) {
  const struct {
    double ratio, db;
  } published[] = {{1, 31.555},   {16, 31.555},   {256, 31.555}, {1024, 31.53},
                   {4096, 30.35}, {16384, 20.65}, {65536, 8.61}};
  for (const auto& [ratio, db] : published) {
    const auto scale = static_cast<float>(4.5 * ratio / 448);
    EXPECT_NEAR(measure(1, scale).sqnr_db, db, kToleranceDb) << ratio;
  }
}

}  // namespace
