// Reports of misleading scales, each reduced to what the observer or the numbers must do.

#include <gtest/gtest.h>

#include <algorithm>

#include "calibrate/amax_observer.h"
#include "calibrate/calibration.h"
#include "calibrate/unseen_tokens.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/e5m2.h"

namespace kv {
namespace {

constexpr int64_t kHeads = 2, kDim = 8;

std::vector<uint16_t> random_rows(int64_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<uint16_t> rows(static_cast<size_t>(tokens * kHeads * kDim));
  for (uint16_t& value : rows) value = bf16::encode(normal(random));
  return rows;
}

void show(AmaxObserver& observer, const std::vector<uint16_t>& rows, int64_t first, int64_t count) {
  AttentionTap tap;
  tap.layer = 0;
  tap.num_tokens = count;
  tap.num_kv_heads = kHeads;
  tap.head_dim = kDim;
  tap.k = tap.v = rows.data() + first * kHeads * kDim;
  observer.on_attention(tap);
}

std::vector<float> amaxes(const AmaxObserver& observer) {
  std::vector<float> out;
  for (const Side side : kSides) {
    for (int64_t head = 0; head < kHeads; ++head) out.push_back(observer.head(0, side, head).amax);
  }
  return out;
}

CalibrationSource fed(std::vector<int32_t> ids) {
  CalibrationSource source;
  source.model_sha256 = "model";
  source.tokenizer_sha256 = "tokenizer";
  source.prompts = "p.jsonl";
  source.prompts_sha256 = "ids";
  source.token_ids = std::move(ids);
  return source;
}

// Eight prompts of unequal lengths, one at a time, all in one call, and backwards. There is no
// padding: only tokens that are fed are shown.
TEST(CalibCases, Case35AmaxDoesNotDependOnBatchOrOrder) {
  constexpr int64_t kTokens = 61;
  const std::vector<int64_t> ends = {1, 2, 9, 17, 30, 31, 47, kTokens};
  const std::vector<uint16_t> rows = random_rows(kTokens, 5);
  AmaxObserver one(1, kHeads), batch(1, kHeads), backwards(1, kHeads);
  show(batch, rows, 0, kTokens);
  for (size_t i = 0; i < ends.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : ends[i - 1];
    show(one, rows, begin, ends[i] - begin);
  }
  for (size_t i = ends.size(); i-- > 0;) {
    const int64_t begin = i == 0 ? 0 : ends[i - 1];
    show(backwards, rows, begin, ends[i] - begin);
  }
  EXPECT_EQ(amaxes(one), amaxes(batch));
  EXPECT_EQ(amaxes(backwards), amaxes(batch));
  EXPECT_EQ(one.tokens(0), kTokens);
}

TEST(CalibCases, Case38WhatLiesBehindTheLastTokenIsNotSeen) {
  std::vector<uint16_t> rows = random_rows(5, 6);
  AmaxObserver clean(1, kHeads), poisoned(1, kHeads);
  rows.resize(rows.size() + 64, bf16::encode(0.0f));
  show(clean, rows, 0, 5);
  std::fill(rows.end() - 64, rows.end(), bf16::encode(1e30f));
  show(poisoned, rows, 0, 5);
  EXPECT_EQ(amaxes(poisoned), amaxes(clean));
}

/// Root of the relative mean square error of Gaussian values of one size under a scale.
template <class Round>
double relative_error(float sigma, Round round) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0f, sigma);
  double error = 0, power = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = normal(random), y = round(static_cast<float>(x));
    error += (x - y) * (x - y);
    power += x * x;
  }
  return std::sqrt(error / power);
}

float through_e4m3(float x, float scale) { return scale * e4m3::decode(e4m3::encode(x / scale)); }

// E4M3 is a floating-point format, so a shared scale costs V nothing while its values stay above
// the smallest normal number times the scale, 2^-6 * 200 / 448 = 0.007 for a K amax of 200 (an
// integer cache would lose V of 0.5 already), and nearly everything below the smallest step,
// 0.0009.
TEST(CalibCases, Case41OneScaleForKAndVCostsWhatFallsBelowItsNormalNumbers) {
  const float shared = 200.0f / 448;
  const auto with = [&](float sigma, float scale) {
    return relative_error(sigma, [&](float x) { return through_e4m3(x, scale); });
  };
  EXPECT_NEAR(with(0.1f, 0.5f / 448), 0.0265, 0.001);
  EXPECT_NEAR(with(0.1f, shared), 0.0265, 0.001) << "V amax 0.5";
  EXPECT_GT(with(0.0005f, shared), 10 * with(0.0005f, 0.0025f / 448)) << "V amax 0.0025";
}

// E5M2 has one bit of mantissa less: twice the error where nothing clips.
TEST(CalibCases, Case44E5m2CostsTwiceTheErrorOfE4m3) {
  const double e4 = relative_error(1.0f, [](float x) { return e4m3::decode(e4m3::encode(x)); });
  const double e5 = relative_error(1.0f, [](float x) { return e5m2::decode(e5m2::encode(x)); });
  EXPECT_NEAR(e4, 0.0265, 0.0010);
  EXPECT_NEAR(e5, 0.053, 0.002);
}

// A scale file says what it was made from: data, tokens, longest position, model, tokenizer.
TEST(CalibCases, Case28TheFileNamesItsData) {
  AmaxObserver observer(1, kHeads);
  show(observer, random_rows(3, 7), 0, 3);
  CalibrationSource source = fed({5, 6});
  source.examples = 1;
  source.tokens = source.max_tokens = 3;
  source.length_histogram = {{16, 1}};
  const ExampleAmax example = read_example(observer, "a");
  EXPECT_EQ(finish_calibration(1, kHeads, {&example, 1}, {}, nullptr, source).source, source);
}

// Calibrated on raw text, evaluated with a template whose token has keys 20 times as large: it is
// named, with its ranges and with what clips there, and nothing else is.
TEST(CalibCases, Case48TokensThatCalibrationNeverSawAreNamedWithTheirRanges) {
  constexpr int32_t kTemplateToken = 90;
  const std::vector<int32_t> text = {11, 12, 13, 11}, templated = {kTemplateToken, 11, 12, 40};
  std::vector<uint16_t> rows = random_rows(4, 8);
  AmaxObserver observer(1, kHeads);
  show(observer, rows, 0, 4);
  const ExampleAmax example = read_example(observer, "a");
  const Calibration calibration =
      finish_calibration(1, kHeads, {&example, 1}, {}, nullptr, fed({11, 12, 13}));

  const std::vector<int32_t> ids = unseen_ids(calibration.source, templated);
  EXPECT_EQ(ids, (std::vector<int32_t>{40, kTemplateToken}));
  std::vector<uint16_t> values = random_rows(4, 9);
  std::ranges::fill(values, bf16::encode(0.5f));
  std::vector<uint16_t> keys = values;
  const float amax = std::max(calibration.at(0, Side::kK, 0), calibration.at(0, Side::kK, 1));
  for (int64_t i = 0; i < 3; ++i) keys[static_cast<size_t>(i)] = bf16::encode(20 * amax);
  keys[kHeads * kDim] = bf16::encode(30 * amax);  // of token 11, which calibration saw
  UnseenTokenObserver watch(calibration, ids);
  watch.begin(templated);
  AttentionTap tap;
  tap.num_tokens = 4;
  tap.num_kv_heads = kHeads;
  tap.head_dim = kDim;
  tap.k = keys.data();
  tap.v = values.data();
  watch.on_attention(tap);

  const std::vector<UnseenToken> found = watch.worst_first();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id, kTemplateToken);
  EXPECT_EQ(found[0].positions, 1);
  EXPECT_EQ(found[0].clipped, 3);
  EXPECT_FLOAT_EQ(found[0].k_amax, bf16::decode(bf16::encode(20 * amax)));
  EXPECT_EQ(found[0].v_amax, 0.5f);
  EXPECT_EQ(found[1].id, 40);
  EXPECT_EQ(found[1].clipped, 0);
  const std::string said = unseen_text(found);
  EXPECT_NE(
      said.find("2 token ids of the prompts were never calibrated on; 3 of their values clip"),
      std::string::npos)
      << said;
  EXPECT_NE(said.find(": 90 (at 1 positions"), std::string::npos) << said;
  EXPECT_EQ(unseen_text({}), "");
  EXPECT_TRUE(unseen_ids({}, templated).empty()) << "a file that does not know says nothing";
}

}  // namespace
}  // namespace kv
