#include "decide/token_drift.h"

#include <gtest/gtest.h>

#include <limits>

#include "kvscale/error.h"

namespace kv {
namespace {

/// Both sides of three layers of two heads under two layouts, with nothing to see.
std::vector<RangeRecord> quiet() {
  std::vector<RangeRecord> out;
  for (const char* layout : {"fp8_scale1", "fp8_tensor"}) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      for (const char* side : {"k", "v", "kv"}) {
        RangeRecord one;
        one.layer = layer;
        one.side = side;
        one.layout = layout;
        one.record_id = std::string("range/") + std::to_string(layer) + "/" + side + "/" + layout;
        if (one.side != "kv") {
          one.token_p99_p50_heads = {2, 3};
          one.amax_pos_slope_heads = {0.1, -0.2};
          one.amax_pos_p_heads = {0.4, 0.9};
          one.channel_share_heads = {0.1, 0.2};
        }
        out.push_back(one);
      }
    }
  }
  return out;
}

RangeRecord& at(std::vector<RangeRecord>& ranges, int64_t layer, const std::string& side) {
  return *std::ranges::find_if(
      ranges, [&](const RangeRecord& r) { return r.layer == layer && r.side == side; });
}

/// The texts of what is found, one a line.
std::string found(const std::vector<RangeRecord>& ranges, const DecideOptions& options = {}) {
  std::string out;
  for (const Reason& one : find_token_drift(options, ranges)) {
    EXPECT_EQ(one.rule, "TOKEN_DRIFT");
    out += one.record + ": " + one.text + "\n";
  }
  return out;
}

TEST(TokenDrift, QuietRangesShowNone) {
  EXPECT_EQ(found(quiet()), "");
  EXPECT_EQ(found({}), "");
}

TEST(TokenDrift, SlopesAreTestedTogether) {
  auto ranges = quiet();
  at(ranges, 2, "v").amax_pos_p_heads[0] = 0.01 / 12;  // 12 heads are tested
  EXPECT_EQ(found(ranges), "") << "0.01 is not below 0.01";
  at(ranges, 2, "v").amax_pos_p_heads[0] = 0.0008;
  EXPECT_NE(found(ranges).find("range/2/v/fp8_scale1: layer 2 side v head 0: magnitudes grow"),
            std::string::npos);
  at(ranges, 2, "v").amax_pos_slope_heads[0] = -0.1;
  EXPECT_EQ(found(ranges), "") << "what shrinks does not clip";
  at(ranges, 2, "v").amax_pos_slope_heads[0] = 0.1;
  DecideOptions options;
  options.token_slope = 0.1;
  EXPECT_EQ(found(ranges, options), "");
  options = {};
  options.token_drift_p = 0.009;
  EXPECT_EQ(found(ranges, options), "");
}

TEST(TokenDrift, TokensThatDiffer256FoldSpread) {
  auto ranges = quiet();
  at(ranges, 1, "k").token_p99_p50_heads[1] = 255.9;
  EXPECT_EQ(found(ranges), "");
  at(ranges, 1, "k").token_p99_p50_heads[1] = 256;
  EXPECT_NE(found(ranges).find("range/1/k/fp8_scale1: layer 1 side k head 1: the 99th percentile"),
            std::string::npos);
  at(ranges, 1, "k").token_p99_p50_heads[1] = std::numeric_limits<double>::infinity();
  EXPECT_NE(found(ranges), "");
  DecideOptions options;
  options.token_spread = 2;
  EXPECT_NE(found(quiet(), options), "");
}

TEST(TokenDrift, AChannelWithMoreThanHalfOfTheEnergyOfKeys) {
  auto ranges = quiet();
  at(ranges, 0, "v").channel_share_heads[0] = 0.9;
  at(ranges, 0, "k").channel_share_heads[0] = 0.5;
  EXPECT_EQ(found(ranges), "") << "values are not a score";
  at(ranges, 0, "k").channel_share_heads[0] = 0.51;
  EXPECT_NE(found(ranges).find("one channel carries 51 % of the keys' energy"), std::string::npos);
  DecideOptions options;
  options.channel_share = 0.6;
  EXPECT_EQ(found(ranges, options), "");
}

TEST(TokenDrift, RecordsOfUnequalListsAreReadAsFarAsTheyGo) {
  auto ranges = quiet();
  at(ranges, 0, "k").amax_pos_slope_heads.clear();
  at(ranges, 0, "k").amax_pos_p_heads = {0, 0, 0};
  EXPECT_EQ(found(ranges), "");
  at(ranges, 0, "k").amax_pos_p_heads = {-1};
  EXPECT_THROW(found(ranges), ValueError);
}

}  // namespace
}  // namespace kv
