#include "decide/flags.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

std::vector<RangeRecord> ranges_of(const std::vector<double>& noise) {
  std::vector<RangeRecord> out;
  for (size_t layer = 0; layer < noise.size(); ++layer) {
    for (const char* side : {"k", "v", "kv"}) {
      RangeRecord record;
      record.layer = static_cast<int64_t>(layer);
      record.side = side;
      record.noise_mean = record.side == "k" ? noise[layer] : 9;  // not score noise
      out.push_back(record);
    }
  }
  return out;
}

TEST(LayerFlags, AreClosedBelow) {
  EXPECT_EQ(flag_layer(0), LayerFlag::kHealthy);
  EXPECT_EQ(flag_layer(0.2999), LayerFlag::kHealthy);
  EXPECT_EQ(flag_layer(0.3), LayerFlag::kDoubtful);
  EXPECT_EQ(flag_layer(0.9999), LayerFlag::kDoubtful);
  EXPECT_EQ(flag_layer(1.0), LayerFlag::kBroken);
  EXPECT_EQ(flag_layer(std::nan("")), LayerFlag::kBroken);
}

// Score noise of published measurements on three models, by layer.
TEST(Shortlist, OfMeasuredModels) {
  std::vector<double> qwen_1_5b(28, 0.15);
  qwen_1_5b[0] = 2.77;
  qwen_1_5b[1] = 0.42;
  EXPECT_EQ(bf16_shortlist(ranges_of(qwen_1_5b), 28), std::vector<int>{0});

  std::vector<double> per_tensor(24, 0.2);
  for (const auto& [layer, noise] : std::vector<std::pair<size_t, double>>{
           {0, 0.90}, {1, 0.86}, {2, 0.46}, {3, 0.34}, {4, 0.54}}) {
    per_tensor[layer] = noise;
  }
  EXPECT_EQ(bf16_shortlist(ranges_of(per_tensor), 24), (std::vector<int>{0, 1, 4, 2, 3}));

  EXPECT_TRUE(bf16_shortlist(ranges_of(std::vector<double>(30, 0.13)), 30).empty());
}

TEST(Shortlist, HoldsAtMostAQuarterWorstFirst) {
  EXPECT_EQ(bf16_shortlist(ranges_of({1.1, 1.3, 1.2, 1.4, 2, 1, 1, 1}), 8),
            (std::vector<int>{4, 3}));
  EXPECT_TRUE(bf16_shortlist(ranges_of({2, 2, 2}), 3).empty()) << "one of three is more";
  EXPECT_TRUE(bf16_shortlist({}, 8).empty());
}

}  // namespace
}  // namespace kv
