#include "decide/localise.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kv {
namespace {

const std::vector<std::string> kLayouts = {"fp8_scale1", "fp8_tensor", "fp8_head",
                                           "fp8_token_head"};

std::vector<RangeRecord> healthy(int64_t layers, int64_t heads = 2) {
  std::vector<RangeRecord> out;
  for (const std::string& layout : kLayouts) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (const char* side : {"k", "v"}) {
        RangeRecord record;
        record.layer = layer;
        record.side = side;
        record.layout = layout;
        record.record_id = layout + "/" + std::to_string(layer) + side;
        record.noise_mean = 0.1;
        record.centred_sqnr_db = 27;
        record.sqnr_db_heads.assign(static_cast<size_t>(heads), 31.5);
        record.clip_frac_heads.assign(static_cast<size_t>(heads), 0);
        out.push_back(record);
      }
    }
  }
  return out;
}

RangeRecord& at(std::vector<RangeRecord>& ranges, const std::string& layout, int64_t layer,
                const std::string& side) {
  return *std::ranges::find_if(ranges, [&](const RangeRecord& r) {
    return r.layout == layout && r.layer == layer && r.side == side;
  });
}

RangeFindings read(const std::vector<RangeRecord>& ranges) {
  return read_ranges(DecideOptions{}, ranges, kLayouts);
}

TEST(Localise, HealthyRangesSuggestNothing) {
  const RangeFindings found = read(healthy(4));
  EXPECT_TRUE(found.offset_layers.empty());
  EXPECT_FALSE(found.has_head_dispersion);
  EXPECT_FALSE(found.has_token_drift);
  EXPECT_TRUE(found.reasons.empty());
}

TEST(Localise, AnOffsetIsThereUnderEveryLayoutWithScales) {
  auto ranges = healthy(4);
  for (const std::string& layout : kLayouts) at(ranges, layout, 2, "k").noise_mean = 0.3;
  EXPECT_EQ(read(ranges).offset_layers, std::vector<int>{2});
  // Scale 1.0 alone may be better or worse: no scale is what must not help.
  at(ranges, "fp8_scale1", 2, "k").noise_mean = 0.01;
  EXPECT_EQ(read(ranges).offset_layers, std::vector<int>{2});
  at(ranges, "fp8_token_head", 2, "k").noise_mean = 0.29;
  EXPECT_TRUE(read(ranges).offset_layers.empty());
  at(ranges, "fp8_token_head", 2, "k").centred_sqnr_db = 9.9;
  EXPECT_EQ(read(ranges).offset_layers, std::vector<int>{2});
}

TEST(Localise, AnOffsetOfTheValuesIsNone) {
  auto ranges = healthy(4);
  for (const std::string& layout : kLayouts) at(ranges, layout, 1, "v").centred_sqnr_db = -5;
  EXPECT_TRUE(read(ranges).offset_layers.empty());
}

TEST(Localise, HeadsDifferFromOneDecibelOn) {
  auto ranges = healthy(4);
  at(ranges, "fp8_tensor", 3, "v").sqnr_db_heads[1] = 30.6;
  EXPECT_FALSE(read(ranges).has_head_dispersion);
  at(ranges, "fp8_tensor", 3, "v").sqnr_db_heads[1] = 30.5;
  const RangeFindings found = read(ranges);
  EXPECT_TRUE(found.has_head_dispersion);
  EXPECT_EQ(found.reasons.at(0).record, "fp8_tensor/3v");
}

TEST(Localise, OneHeadThatClipsAloneDiffers) {
  auto ranges = healthy(4);
  at(ranges, "fp8_tensor", 0, "k").clip_frac_heads = {0, 0.5};
  EXPECT_TRUE(read(ranges).has_head_dispersion);
  at(ranges, "fp8_tensor", 0, "k").clip_frac_heads = {0.5, 0.5};
  EXPECT_FALSE(read(ranges).has_head_dispersion);
}

TEST(Localise, ClippingBeyondTheCalibratedRangeIsDrift) {
  auto ranges = healthy(4);
  at(ranges, "fp8_scale1", 0, "k").clip_frac = 0.1;  // not calibrated: says nothing
  at(ranges, "fp8_head", 0, "k").clip_frac = 1e-4;
  EXPECT_FALSE(read(ranges).has_token_drift);
  at(ranges, "fp8_head", 0, "k").clip_frac = 1.1e-4;
  EXPECT_TRUE(read(ranges).has_token_drift);
}

TEST(Localise, CompleteMeansEverySideLayerAndLayout) {
  auto ranges = healthy(3);
  EXPECT_TRUE(is_complete(ranges, kLayouts, 3));
  EXPECT_FALSE(is_complete(ranges, kLayouts, 4));
  ranges.pop_back();
  EXPECT_FALSE(is_complete(ranges, kLayouts, 3));
  EXPECT_TRUE(is_complete(ranges, {"fp8_scale1"}, 3));
}

TEST(RestoreOrder, DoubtfulScoresComeFirstThenValues) {
  auto ranges = healthy(5);
  at(ranges, "fp8_scale1", 1, "k").noise_mean = 0.5;
  at(ranges, "fp8_scale1", 3, "k").noise_mean = 2.0;
  at(ranges, "fp8_scale1", 0, "v").noise_mean = 0.2;
  at(ranges, "fp8_scale1", 4, "v").noise_mean = 0.9;
  EXPECT_EQ(restore_order(ranges, "fp8_scale1", 5), (std::vector<int>{3, 1, 4, 0, 2}));
  EXPECT_EQ(restore_order(ranges, "fp8_tensor", 5), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(BlamedSides, KeysWhereTheScoreNoiseIsDoubtfulElseValues) {
  auto ranges = healthy(5);
  at(ranges, "fp8_tensor", 3, "k").noise_mean = 0.3;
  at(ranges, "fp8_tensor", 1, "k").noise_mean = std::nan("");
  at(ranges, "fp8_tensor", 4, "k").noise_mean = 0.29;
  const ArmSpec base = ArmSpec::parse("fp8_tensor");
  EXPECT_EQ(blamed_sides(ranges, base, {4, 3, 1}).text(), "fp8_tensor/bf16=1k,3k,4v");
  EXPECT_EQ(blamed_sides(ranges, base, {}).text(), "fp8_tensor");
}

TEST(LayerTypes, AreThoseOfUnequalGeometry) {
  EXPECT_TRUE(layer_types({}).empty());
  EXPECT_TRUE(layer_types({{2, 64, 0}, {2, 64, 0}}).empty());
  const auto types = layer_types({{2, 64, 512}, {2, 64, 0}, {2, 64, 512}, {1, 128, 0}});
  ASSERT_EQ(types.size(), 3u);
  EXPECT_EQ(types[0].what, "with a window of 512 tokens");
  EXPECT_EQ(types[0].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(types[1].what, "over the whole context, 2 KV heads of 64");
  EXPECT_EQ(types[1].layers, std::vector<int>{1});
  EXPECT_EQ(types[2].layers, std::vector<int>{3});
}

TEST(LongestPrefix, IsBoundByShareAndByCapacity) {
  const DecideOptions options;
  const ArmSpec base{ArmLayout::kFp8Scale1, {}, Math::kBf16, Rounding::kNearestEven, ""};
  const auto longest = [&](int64_t layers, const ArmSpec& arm, int64_t head_dim) {
    std::vector<int> order(static_cast<size_t>(layers));
    std::iota(order.begin(), order.end(), 0);
    const std::vector<LayerGeometry> geometry(static_cast<size_t>(layers), {2, head_dim, 0});
    return longest_prefix(options, geometry, arm, order, 4096);
  };
  // 2L / (L + k) >= 1.7: k <= 0.176 L.
  EXPECT_EQ(longest(32, base, 128), 5u);
  EXPECT_EQ(longest(28, base, 128), 4u);
  EXPECT_EQ(longest(6, base, 64), 1u);
  EXPECT_EQ(longest(5, base, 64), 0u);
  EXPECT_EQ(longest(3, base, 64), 0u);
  ArmSpec inline_scales = base;
  inline_scales.layout = ArmLayout::kFp8TokenHead;
  EXPECT_EQ(longest(6, inline_scales, 64), 0u);
  EXPECT_EQ(longest(28, inline_scales, 128), 4u);
}

struct AblationCase {
  std::vector<double> kld;  // by number of layers kept
  std::vector<int> expected;
  size_t measured;
};

/// Runs an ablation to its end, answering what is missing.
Ablation run_ablation(const std::vector<double>& kld, size_t longest, double floor,
                      size_t& measured, size_t guess = 1) {
  const ArmSpec base{ArmLayout::kFp8Scale1, {}, Math::kBf16, Rounding::kNearestEven, ""};
  const std::vector<int> order = {7, 3, 5, 1, 0, 2, 4, 6};
  std::vector<ArmRecord> records;
  while (true) {
    const Ablation out = ablate(DecideOptions{}, records, base, order, longest, floor, guess);
    if (out.missing.empty()) {
      measured = records.size();
      return out;
    }
    for (const std::string& arm : out.missing) {
      const size_t kept = ArmSpec::parse(arm).bf16.size();
      records.push_back({"arm/" + arm, arm, 100, 1, kld[kept], 0, 1});
    }
  }
}

TEST(Ablation, FindsTheShortestPrefixAndMeasuresNoMoreThanItsGroup) {
  const std::vector<AblationCase> cases = {
      {{1.348, 0.017, 0, 0, 0, 0, 0, 0}, {7}, 2},
      {{1, 0.5, 0.19, 0.1, 0, 0, 0, 0}, {3, 7}, 4},
      {{1, 0.9, 0.5, 0.2, 0, 0, 0, 0}, {3, 5, 7}, 4},
      {{1, 0.9, 0.8, 0.7, 0.6, 0.1, 0, 0}, {0, 1, 3, 5, 7}, 8},
      {{1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3}, {}, 8},
  };
  for (const AblationCase& one : cases) {
    size_t measured = 0;
    Ablation found = run_ablation(one.kld, 7, 0, measured);
    std::ranges::sort(found.layers);
    EXPECT_EQ(found.layers, one.expected);
    EXPECT_EQ(measured, one.measured);
  }
}

// Whatever is guessed, the list is the same: a guess says where the search begins.
TEST(Ablation, AGoodGuessTakesThreeArmsAndABadOneFindsTheSame) {
  std::vector<double> kld = {1, 0.9, 0.8, 0.7, 0.6, 0.1, 0.05, 0};
  for (size_t needed = 1; needed <= 7; ++needed) {
    for (size_t i = 0; i < kld.size(); ++i) kld[i] = i < needed ? 1 - 0.01 * double(i) : 0.01;
    for (size_t guess = 0; guess <= 9; ++guess) {
      size_t measured = 0;
      const Ablation found = run_ablation(kld, 7, 0, measured, guess);
      EXPECT_EQ(found.layers.size(), needed) << guess;
      EXPECT_EQ(found.points.back().bf16_layers, static_cast<int>(needed)) << guess;
      EXPECT_LE(measured, 8u);
      EXPECT_LE(guess == needed ? measured : 0, 3u) << needed;
    }
  }
  size_t measured = 0;
  EXPECT_TRUE(
      run_ablation({1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3}, 7, 0, measured, 7).layers.empty());
  EXPECT_EQ(measured, 3u) << "all, all but one and none settle that no prefix will do";
}

TEST(Ablation, ThePredictionGuessesAndWithoutOneTheSearchBeginsAtOne) {
  const ArmSpec base{ArmLayout::kFp8Scale1, {}, Math::kBf16, Rounding::kNearestEven, ""};
  std::vector<RangeRecord> ranges;
  const auto guess = [&] {
    return predicted_prefix(DecideOptions{}, ranges, base, {3, 1, 0, 2}, 3);
  };
  EXPECT_EQ(guess(), 1u);
  for (int64_t layer = 0; layer < 4; ++layer) {
    RangeRecord record;
    record.layer = layer;
    record.side = "kv";
    record.layout = "fp8_scale1";
    record.normed_damage = layer % 2 == 1 ? 0.1 : 0.01;
    ranges.push_back(record);
  }
  EXPECT_EQ(guess(), 2u) << "layers 3 and 1";
  for (RangeRecord& record : ranges) record.normed_damage = 0.1;
  EXPECT_EQ(guess(), 3u) << "none suffices: the longest that may be";
}

TEST(Ablation, CountsOnlyWhatLiesAboveTheNoiseFloor) {
  size_t measured = 0;
  // 0.1 of 0.5 stays: exactly 80 % of the KLD, but all of the excess.
  EXPECT_TRUE(run_ablation({0.5, 0.11}, 1, 0.0, measured).layers.empty());
  EXPECT_EQ(run_ablation({0.5, 0.11}, 1, 0.1, measured).layers, std::vector<int>{7});
  EXPECT_TRUE(run_ablation({0.05, 0.0}, 1, 0.1, measured).layers.empty()) << "no excess at all";
}

TEST(Ablation, ABaseThatIsNotFiniteIsRepairedByWhatIs) {
  size_t measured = 0;
  EXPECT_EQ(run_ablation({std::nan(""), 0.02}, 1, 0, measured).layers, std::vector<int>{7});
  EXPECT_TRUE(run_ablation({std::nan(""), std::nan("")}, 1, 0, measured).layers.empty());
}

TEST(Ablation, WithoutRoomForALayerNothingIsMeasured) {
  const ArmSpec base{ArmLayout::kFp8Scale1, {}, Math::kBf16, Rounding::kNearestEven, ""};
  const Ablation out = ablate(DecideOptions{}, {}, base, {0, 1, 2}, 0, 0);
  EXPECT_TRUE(out.missing.empty());
  EXPECT_TRUE(out.layers.empty());
}

}  // namespace
}  // namespace kv
