#include <gtest/gtest.h>

#include <map>

#include "cuda/prefill.h"
#include "kvscale/error.h"

namespace kv::cuda {
namespace {

// Every query token of every sequence and KV head exactly once, at its position, longest first.
TEST(PrefillPlan, EveryQueryOnceAtItsPosition) {
  const std::vector<PrefillSequence> sequences = {
      {0, 0, 300, 300}, {2, 300, 5, 4000}, {3, 305, 1, 1}, {7, 306, 0, 10}, {8, 306, 129, 200}};
  for (const int group : {1, 3, 4, 7, 16}) {
    const auto tiles = plan_prefill(sequences, 2, group);
    std::map<std::pair<int, int>, int> seen;  // (row, head) -> position
    int last = 1 << 30;
    for (const PrefillTile& tile : tiles) {
      EXPECT_GT(tile.num_tokens, 0);
      EXPECT_LE(tile.num_tokens * group, kPrefillRows);
      EXPECT_LE(tile.position + tile.num_tokens, last);
      last = tile.position + tile.num_tokens;
      for (int i = 0; i < tile.num_tokens; ++i) {
        const auto key = std::make_pair(tile.query_row + i, tile.kv_head);
        EXPECT_TRUE(seen.emplace(key, tile.position + i).second);
      }
    }
    EXPECT_EQ(seen.size(), 2u * 435u);
    for (const PrefillSequence& s : sequences) {
      for (int i = 0; i < s.num_queries; ++i) {
        const auto first = std::make_pair(s.query_row + i, 0);
        EXPECT_EQ(seen.at(first), s.seq_len - s.num_queries + i);
      }
    }
  }
}

TEST(PrefillPlan, RefusesGroupsWiderThanTheKernels) {
  EXPECT_THROW(plan_prefill({}, 8, 17), UnsupportedError);
}

TEST(PrefillPlan, NothingToDoGivesNoTiles) { EXPECT_TRUE(plan_prefill({}, 8, 4).empty()); }

}  // namespace
}  // namespace kv::cuda
