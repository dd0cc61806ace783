// Estimators against the definition, applied to the values themselves.

#include "calibrate/estimator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "calibrate/calibration.h"
#include "calibrate/warmup.h"
#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

namespace kv {
namespace {

/// Values of a few shapes: normal, with outliers, over many orders, all the same.
std::vector<std::vector<uint16_t>> samples() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::vector<uint16_t>> out(4);
  for (int i = 0; i < 3000; ++i) {
    const float x = normal(random);
    out[0].push_back(bf16::encode(3 * x));
    out[1].push_back(bf16::encode(i % 500 == 0 ? 100 * x : x));
    out[2].push_back(bf16::encode(std::exp(6 * x) * (i % 2 == 0 ? 1.0f : -1.0f)));
    out[3].push_back(bf16::encode(-0.75f));
  }
  return out;
}

ValueHistogram histogram_of(const std::vector<uint16_t>& values) {
  ValueHistogram out;
  out.add(values.data(), values.size());
  return out;
}

std::vector<float> sorted_magnitudes(const std::vector<uint16_t>& values) {
  std::vector<float> out;
  for (const uint16_t x : values) out.push_back(std::abs(bf16::decode(x)));
  std::ranges::sort(out);
  return out;
}

TEST(ValueHistogram, HoldsEveryFiniteBf16) {
  std::vector<uint16_t> all;
  for (uint32_t bits = 0; bits < 65536; ++bits) all.push_back(static_cast<uint16_t>(bits));
  const ValueHistogram histogram = histogram_of(all);
  const auto bins = histogram.bins();
  ASSERT_EQ(bins.size(), 32640u);  // 255 exponents x 128 mantissas
  EXPECT_EQ(histogram.count(), 2 * 32640);
  EXPECT_EQ(histogram.amax(), bf16::decode(0x7f7f));
  for (size_t i = 0; i < bins.size(); ++i) {
    ASSERT_EQ(bins[i].count, 2);
    ASSERT_EQ(bins[i].magnitude, bf16::decode(static_cast<uint16_t>(i)));
  }
  std::string bytes;
  histogram.append_to(bytes);
  std::string_view rest = bytes;
  const auto back = ValueHistogram::take(rest);
  ASSERT_TRUE(back && rest.empty());
  EXPECT_EQ(*back, histogram);
  EXPECT_EQ(histogram.count_above(448),
            2 * std::ranges::count_if(bins, [](const auto& bin) { return bin.magnitude > 448; }));
}

TEST(ValueHistogram, MutatedBytesAreReadOrRefused) {
  std::string bytes;
  for (const auto& values : samples()) histogram_of(values).append_to(bytes);
  std::mt19937 random(4);
  ValueObserver observer(1, 2);
  observer.read(bytes, "v.bin");
  EXPECT_EQ(observer.bytes(), bytes);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string mutant = bytes;
    if (i % 2 == 0) {
      mutant.resize(random() % mutant.size());
    } else {
      mutant[random() % mutant.size()] = static_cast<char>(random());
    }
    try {
      observer.read(mutant, "v.bin");
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Estimator, NamesComeBack) {
  for (const char* text : {"amax", "percentile:99.99", "percentile:50", "mse", "pow2"}) {
    EXPECT_EQ(Estimator::parse(text).text(), text);
  }
  for (const char* text : {"", "max", "percentile", "percentile:", "percentile:0", "percentile:101",
                           "percentile:99x", "percentile:nan", "mse:2"}) {
    EXPECT_THROW(Estimator::parse(text), ValueError) << text;
  }
}

TEST(Estimator, APercentileIsTheNearestRankOfTheValuesThemselves) {
  for (const auto& values : samples()) {
    const std::vector<float> sorted = sorted_magnitudes(values);
    const ValueHistogram histogram = histogram_of(values);
    for (const double percent : {0.01, 1.0, 50.0, 90.0, 99.9, 99.99, 100.0}) {
      // The least magnitude that at least so many per cent do not exceed. Counted in hundredths of
      // a per cent, which are whole.
      const auto hundredths = static_cast<int64_t>(std::llround(percent * 100));
      size_t rank = 1;
      while (static_cast<int64_t>(rank) * 10000 < hundredths * std::ssize(sorted)) ++rank;
      EXPECT_EQ(estimate_range({Estimator::Kind::kPercentile, percent}, histogram),
                sorted[rank - 1])
          << percent;
    }
  }
}

/// By the definition: over values one by one.
double error_of(const std::vector<uint16_t>& values, float scale) {
  double error = 0;
  for (const uint16_t bits : values) {
    const float x = bf16::decode(bits);
    const double off = x - static_cast<double>(scale) * e4m3::decode(e4m3::encode(x / scale));
    error += off * off;
  }
  return error / static_cast<double>(values.size());
}

TEST(Estimator, MseTakesTheBestOf64CandidatesOfTheValuesThemselves) {
  bool clips = false;
  for (const auto& values : samples()) {
    const float amax = sorted_magnitudes(values).back();
    double least = std::numeric_limits<double>::infinity();
    float best = 0;
    for (int i = 0; i < 64; ++i) {
      const float range = i == 63 ? amax : static_cast<float>((0.3 + 0.7 * i / 63) * amax);
      const double error = error_of(values, bf16::round_up(range / 448));
      // Sums in another order: equal errors may differ in their last bits.
      if (error <= least * (1 + 1e-12)) {
        least = std::min(least, error);
        best = range;
      }
    }
    const float found = estimate_range({Estimator::Kind::kMse}, histogram_of(values));
    EXPECT_NEAR(error_of(values, bf16::round_up(found / 448)), least, 1e-12 * least);
    EXPECT_EQ(bf16::round_up(found / 448), bf16::round_up(best / 448));
    clips |= found < amax;
  }
  EXPECT_TRUE(clips) << "no sample where clipping pays";
}

TEST(Estimator, PowersOfTwoAreTheLeastThatReachAmax) {
  const Estimator pow2{Estimator::Kind::kPow2};
  for (const float amax : {448.0f, 449.0f, 447.0f, 56.0f, 0.75f, 3e38f, 1e-30f, 224.5f}) {
    const float scale = scale_of_range(pow2, amax);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5f) << amax;
    EXPECT_GE(448.0 * scale, amax);
    EXPECT_LT(224.0 * scale, amax);
    EXPECT_EQ(bf16::decode(bf16::encode(scale)), scale);
  }
  EXPECT_EQ(scale_of_range(pow2, 0), 1);
  EXPECT_EQ(scale_of_range({}, 56), 0.125f);
}

AttentionTap tap_of(const std::vector<uint16_t>& k, const std::vector<uint16_t>& v, int64_t heads) {
  AttentionTap tap;
  tap.num_tokens = 1;
  tap.num_kv_heads = heads;
  tap.head_dim = std::ssize(k) / heads;
  tap.k = k.data();
  tap.v = v.data();
  return tap;
}

/// One layer of two heads with values of their own.
Calibration calibrated(const Estimator& estimator, ValueObserver& values) {
  const auto all = samples();
  std::vector<uint16_t> k = all[0], v = all[2];
  k.insert(k.end(), all[1].begin(), all[1].end());
  v.insert(v.end(), all[3].begin(), all[3].end());
  AmaxObserver amax(1, 2);
  const AttentionTap tap = tap_of(k, v, 2);
  amax.on_attention(tap);
  values.on_attention(tap);
  const std::vector<ExampleAmax> examples(2, read_example(amax, "a"));
  return finish_calibration(1, 2, examples, estimator, &values, {});
}

TEST(Estimator, ScalesPerTensorAreOfAllHeadsTogether) {
  for (const char* name : {"percentile:99", "mse"}) {
    const Estimator estimator = Estimator::parse(name);
    ValueObserver values(1, 2);
    const Calibration c = calibrated(estimator, values);
    std::vector<uint16_t> both = samples()[0], second = samples()[1];
    both.insert(both.end(), second.begin(), second.end());
    EXPECT_EQ(c.tensor_ranges[0], estimate_range(estimator, histogram_of(both))) << name;
    EXPECT_EQ(c.head_ranges[1], estimate_range(estimator, histogram_of(second))) << name;
    EXPECT_EQ(c.scales(true).heads(0, Side::kK)[1], bf16::round_up(c.head_ranges[1] / 448));
    EXPECT_EQ(c.scales(false).heads(0, Side::kK)[1], bf16::round_up(c.tensor_ranges[0] / 448));
    EXPECT_EQ(c.scales(false).heads(0, Side::kK)[0], c.scales(false).heads(0, Side::kK)[1]);
  }
}

TEST(Estimator, APercentileAmongZerosIsAnErrorAndNotScale1) {
  const std::vector<uint16_t> mostly_zero = {0, 0, 0, bf16::encode(2)};
  ValueObserver values(1, 1);
  values.on_attention(tap_of(mostly_zero, mostly_zero, 1));
  const ExampleAmax example{1, {2, 2}};
  const Estimator half = Estimator::parse("percentile:50");
  EXPECT_THROW(finish_calibration(1, 1, {&example, 1}, half, &values, {}), ValueError);
  EXPECT_THROW(finish_calibration(1, 1, {&example, 1}, half, nullptr, {}), ValueError);
}

class EstimatorFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                ("kvscale-estimator-" + std::to_string(::getpid()) + ".json");
};

TEST_F(EstimatorFile, KeepsTheEstimatorAndItsRanges) {
  for (const char* name : {"amax", "pow2", "percentile:99.9", "mse"}) {
    ValueObserver values(1, 2);
    const Calibration c = calibrated(Estimator::parse(name), values);
    write_calibration(path_, c);
    EXPECT_EQ(read_calibration(path_), c) << name;
  }
}

// Whole files with their own checksums, whose ranges their estimator cannot have given.
TEST_F(EstimatorFile, ARangeThatTheEstimatorCannotHaveGivenIsRefused) {
  for (const char* name : {"percentile:99.9", "mse"}) {
    ValueObserver values(1, 2);
    Calibration c = calibrated(Estimator::parse(name), values);
    c.head_ranges[0] = name[0] == 'm' ? 0.29f * c.amax[0] : 1.01f * c.amax[0];
    write_calibration(path_, c);
    EXPECT_THROW(read_calibration(path_), FormatError) << name;
    c.head_ranges[0] = 0;
    write_calibration(path_, c);
    EXPECT_THROW(read_calibration(path_), FormatError) << name;
  }
}

TEST(Warmup, SaysWhatTheFirstRequestsMissed) {
  const auto bf16 = [](std::vector<float> values) {
    std::vector<uint16_t> out;
    for (const float x : values) out.push_back(bf16::encode(x));
    return out;
  };
  ValueObserver values(1, 1);
  std::vector<ExampleAmax> examples;
  for (const auto& k : {bf16({1, -2, 0.5f, 1}), bf16({4, -8, 2.5f, 1})}) {
    AmaxObserver amax(1, 1);
    const auto v = bf16({1, 1, 1, -1});
    amax.on_attention(tap_of(k, v, 1));
    values.on_attention(tap_of(k, v, 1));
    examples.push_back(read_example(amax, "a"));
  }
  const Calibration all = finish_calibration(1, 1, examples, {}, nullptr, {});
  const Calibration first = finish_calibration(1, 1, {examples.data(), 1}, {}, nullptr, {});
  const std::vector<WarmupLoss> losses = compare_warmup(first, all, values);
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0].amax_ratio(), 4);
  EXPECT_EQ(losses[0].values, 8);
  EXPECT_EQ(losses[0].clipped, 3);  // 4, 8 and 2.5 beyond 2
  EXPECT_EQ(losses[1].amax_ratio(), 1);
  EXPECT_EQ(losses[1].clipped, 0);
  EXPECT_EQ(warmup_text(first, all, losses),
            "scales of the first 1 of 2 requests: all of them raise amax on 1 of 2 layers' sides, "
            "most on layer 0 side k (2 to 8, 4 times); 3 of 16 values clip under one scale per "
            "layer");
}

}  // namespace
}  // namespace kv
