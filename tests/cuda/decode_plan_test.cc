#include "cuda/decode_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "kvscale/error.h"

namespace kv::cuda {
namespace {

constexpr int64_t kShared = 227 * 1024;

PageLayout page(Format format, int64_t heads, int64_t dim, PageOrder order, int64_t block = 16) {
  return PageLayout::make(format, format, heads, dim, block, order);
}

DecodeShape shape_of(const PageLayout& p) { return decode_shape(p, p.page_bytes, kShared); }

DecodePlan plan(const DecodeShape& shape, const std::vector<int32_t>& lens,
                const DecodePlanOptions& options) {
  std::vector<int32_t> rows;
  for (size_t s = 0; s < lens.size(); ++s) rows.push_back(static_cast<int32_t>(3 * s));
  return plan_decode(shape, lens, rows, options);
}

/// Every tile of every sequence and head group exactly once, in the order of the partial results.
void expect_covers(const DecodePlan& plan, const std::vector<int32_t>& lens, int window) {
  std::map<std::pair<int, int>, std::map<int, const DecodeItem*>> by_begin;
  size_t reached = 0;
  for (int b = 0; b < plan.num_blocks; ++b) {
    for (int i = b; i >= 0; i = plan.items[static_cast<size_t>(i)].next) ++reached;
  }
  EXPECT_EQ(reached, plan.items.size());
  for (const DecodeItem& item : plan.items) {
    EXPECT_LT(item.begin_tile, item.end_tile);
    EXPECT_EQ(item.seq_len, lens[static_cast<size_t>(item.seq)]);
    EXPECT_EQ(item.query_row, 3 * item.seq);
    auto& items = by_begin[{item.seq, item.head_group}];
    EXPECT_TRUE(items.emplace(item.begin_tile, &item).second);
  }
  std::map<std::pair<int, int>, DecodeMerge> merges;
  for (const DecodeMerge& m : plan.merges) merges[{m.query_row / 3, m.head_group}] = m;
  for (int s = 0; s < static_cast<int>(lens.size()); ++s) {
    for (int g = 0; g < plan.shape.head_groups; ++g) {
      const auto& items = by_begin[{s, g}];
      int at = window > 0 ? std::max(0, lens[static_cast<size_t>(s)] - window) / 16 : 0;
      int partial = -1;
      const bool merged = items.size() > 1 || plan.shape.tiles > 1;
      if (merged) partial = merges.at({s, g}).first_partial;
      for (const auto& [begin, item] : items) {
        EXPECT_EQ(begin, at);
        at = item->end_tile;
        EXPECT_EQ(item->partial, partial);
        if (merged) partial += plan.shape.tiles;
      }
      EXPECT_EQ(at, (lens[static_cast<size_t>(s)] + 15) / 16);
      if (merged) {
        EXPECT_EQ(partial - merges.at({s, g}).first_partial, merges.at({s, g}).num_partials);
      }
    }
  }
}

// The pieces of a tile, walked as the kernel walks them, hit the bytes that layout.h names.
TEST(DecodeShape, PiecesCarryEveryCellToWhereTheWarpsReadIt) {
  for (const Format format : {Format::kBf16, Format::kE4m3PerHead, Format::kE4m3PerTokenHead}) {
    for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd}) {
      for (const int64_t heads : {1, 2, 3, 4, 8, 10, 16, 24}) {
        for (const int64_t dim : {64, 96, 128, 256}) {
          for (const int64_t block : {16, 48}) {
            const PageLayout p = page(format, heads, dim, order, block);
            const DecodeShape s = shape_of(p);
            EXPECT_EQ(s.piece_bytes % 16, 0);
            EXPECT_EQ(s.pieces_per_tile * s.piece_bytes, s.tile_bytes);
            EXPECT_EQ(s.heads * s.head_groups, heads);
            EXPECT_LE(s.warps(), 8);
            EXPECT_LE(s.stages * s.stage_bytes() + 1024, kShared);
            std::vector<int64_t> source(static_cast<size_t>(s.tile_bytes), -1);  // of each byte
            const int group = s.head_groups - 1;
            const int64_t tile_slot = block - 16;
            for (int piece = 0; piece < s.pieces_per_tile; ++piece) {
              const int64_t from = tile_slot * p.sides[0].slot_stride +
                                   group * s.heads * p.sides[0].head_stride + piece * s.piece_step;
              EXPECT_EQ(from % 16, 0);
              for (int i = 0; i < s.piece_bytes; ++i)
                source[static_cast<size_t>(piece * s.piece_bytes + i)] = from + i;
            }
            for (int h = 0; h < s.heads; ++h) {
              for (int slot = 0; slot < 16; ++slot) {
                const int at = h * s.smem_head_stride + slot * s.smem_slot_stride;
                EXPECT_EQ(source[static_cast<size_t>(at)],
                          p.sides[0].byte(group * s.heads + h, tile_slot + slot, 0));
                EXPECT_EQ(source[static_cast<size_t>(at + p.sides[1].base + dim - 1)],
                          p.sides[1].byte(group * s.heads + h, tile_slot + slot, 0) + dim - 1);
              }
            }
          }
        }
      }
    }
  }
}

TEST(DecodeShape, EightHeadsArriveAsOneCopy) {
  const DecodeShape s = shape_of(page(Format::kE4m3PerTokenHead, 8, 128, PageOrder::kNhd));
  EXPECT_EQ(s.pieces_per_tile, 1);
  EXPECT_EQ(s.piece_bytes, 33792);
  EXPECT_EQ(s.stages, 6);
}

TEST(DecodeShape, RefusalsNameWhatIsNeededAndWhatIsSupported) {
  const auto refusal = [](const PageLayout& p) -> std::string {
    try {
      shape_of(p);
    } catch (const UnsupportedError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal(page(Format::kBf16, 8, 128, PageOrder::kNhd, 61)),
            "attend: cuda supports block_size a multiple of 16, needed 61");
  EXPECT_EQ(refusal(page(Format::kBf16, 8, 128, PageOrder::kCpu)),
            "attend: cuda supports pages in NHD and HND order, needed the CPU's");
  // 11 heads have no divisor but 1, and one inline cell of 264 bytes is no legal copy.
  EXPECT_NE(refusal(page(Format::kE4m3PerTokenHead, 11, 128, PageOrder::kNhd)).find("needed 11"),
            std::string::npos);
}

TEST(DecodePlan, EveryTileOnceWhateverTheLengths) {
  const std::vector<std::vector<int32_t>> batches = {
      {1}, {16}, {17}, {131072}, {1, 15, 16, 17, 127, 128, 129}, {100000, 1, 3, 50000, 16, 16}};
  for (const int64_t heads : {1, 2, 8, 16}) {
    const DecodeShape s = shape_of(page(Format::kE4m3PerHead, heads, 128, PageOrder::kHnd));
    for (const auto& lens : batches) {
      for (const int window : {0, 1, 100, 4096}) {
        for (const int blocks : {1, 7, 132}) {
          for (const int split : {-1, 0, 256, 1024}) {
            const DecodePlan p = plan(s, lens, {blocks, window, split >= 0, std::max(split, 0)});
            EXPECT_LE(p.num_blocks, blocks);
            expect_covers(p, lens, window);
          }
        }
      }
    }
  }
}

TEST(DecodePlan, BalancedBlocksDifferByOneStage) {
  const DecodeShape s = shape_of(page(Format::kE4m3PerHead, 8, 128, PageOrder::kNhd));
  const std::vector<int32_t> lens = {8192, 100, 77777, 16, 3000};
  const DecodePlan p = plan(s, lens, {132, 0, false, 0});
  int least = 1 << 30, most = 0;
  for (int b = 0; b < p.num_blocks; ++b) {
    int tiles = 0;
    for (int i = b; i >= 0; i = p.items[static_cast<size_t>(i)].next) {
      tiles +=
          p.items[static_cast<size_t>(i)].end_tile - p.items[static_cast<size_t>(i)].begin_tile;
    }
    least = std::min(least, tiles);
    most = std::max(most, tiles);
  }
  EXPECT_LE(most - least, 1);
}

// What makes results independent of the batch: a sequence's items are the same alone and in
// company.
TEST(DecodePlan, InvariantSplitsDependOnTheSequenceAlone) {
  const DecodeShape s = shape_of(page(Format::kE4m3PerHead, 2, 128, PageOrder::kNhd));
  const auto items_of = [&](const std::vector<int32_t>& lens, int seq) {
    const DecodePlan p = plan(s, lens, {132, 300, true, 512});
    std::map<int, int> out;
    for (const DecodeItem& item : p.items) {
      if (item.seq == seq) out[item.begin_tile] = item.end_tile;
    }
    return out;
  };
  EXPECT_EQ(items_of({5000}, 0), items_of({17, 5000, 90000}, 1));
  EXPECT_THROW(plan(s, {5}, {132, 0, true, 100}), UnsupportedError);
  EXPECT_THROW(plan(s, {5, 0}, {132, 0, false, 0}), ValueError);
}

}  // namespace
}  // namespace kv::cuda
