#include "cuda/decode_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

#include "kvscale/error.h"

namespace kv::cuda {
namespace {

// Barriers and alignment take less than this of a block's shared memory.
constexpr int64_t kSharedForBarriers = 1024;
// A stage of more leaves too few of them to keep copies in flight while one is computed on.
constexpr int64_t kLargestStage = 72 * 1024;
constexpr int kLargestRing = 16;

int64_t cell_bytes(const PageLayout& page) {
  return side_bytes(page.side(Side::kK).format, page.head_dim) +
         side_bytes(page.side(Side::kV).format, page.head_dim);
}

void check_page(const PageLayout& page, int64_t block_stride) {
  if (page.order == PageOrder::kCpu)
    throw UnsupportedError("attend: cuda supports pages in NHD and HND order, needed the CPU's");
  if (page.block_size % kTileTokens != 0) {
    throw UnsupportedError(
        fmt::format("attend: cuda supports block_size a multiple of {}, needed {}", kTileTokens,
                    page.block_size));
  }
  if (block_stride % 16 != 0) {
    throw UnsupportedError(fmt::format(
        "attend: cuda supports blocks a multiple of 16 bytes apart, needed {}", block_stride));
  }
}

/// Fills in how one tile of `heads` heads is copied; false if its pieces are no legal bulk copies.
bool place_pieces(const PageLayout& page, int heads, DecodeShape& s) {
  const auto cell = static_cast<int>(cell_bytes(page));
  s.heads = heads;
  s.head_groups = static_cast<int>(page.num_kv_heads) / heads;
  if (page.order == PageOrder::kHnd) {
    s.pieces_per_tile = heads;
    s.piece_bytes = kTileTokens * cell;
    s.piece_step = page.side(Side::kK).head_stride;
    s.smem_head_stride = s.piece_bytes;
    s.smem_slot_stride = cell;
  } else {
    const bool whole = heads == page.num_kv_heads;  // then all slots of a tile are one piece
    s.pieces_per_tile = whole ? 1 : kTileTokens;
    s.piece_bytes = (whole ? kTileTokens : 1) * heads * cell;
    s.piece_step = page.side(Side::kK).slot_stride;
    s.smem_head_stride = cell;
    s.smem_slot_stride = heads * cell;
  }
  s.tile_bytes = s.pieces_per_tile * s.piece_bytes;
  return s.piece_bytes % 16 == 0;
}

int first_tile(int32_t seq_len, int window) {
  return window > 0 ? std::max(0, seq_len - window) / kTileTokens : 0;
}

int end_tile(int32_t seq_len) { return (seq_len + kTileTokens - 1) / kTileTokens; }

/// Gives every (sequence, head group) that is not one final item its partial results, in order.
void number_partials(DecodePlan& plan) {
  const int per_item = plan.shape.tiles;
  std::vector<size_t> order(plan.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const DecodeItem &x = plan.items[a], &y = plan.items[b];
    return std::tie(x.seq, x.head_group, x.begin_tile) <
           std::tie(y.seq, y.head_group, y.begin_tile);
  });
  for (size_t i = 0; i < order.size();) {
    const DecodeItem& first = plan.items[order[i]];
    size_t end = i;
    while (end < order.size() && plan.items[order[end]].seq == first.seq &&
           plan.items[order[end]].head_group == first.head_group) {
      ++end;
    }
    const int count = static_cast<int>(end - i) * per_item;
    if (count > 1) {
      plan.merges.push_back({first.query_row, first.head_group, plan.num_partials, count});
      for (size_t j = i; j < end; ++j) {
        plan.items[order[j]].partial = plan.num_partials;
        plan.num_partials += per_item;
      }
    }
    i = end;
  }
}

using BlockItems = std::vector<std::vector<DecodeItem>>;

/// Spreads stages over blocks evenly: a block takes a run of stages that may cross sequences.
BlockItems spread_evenly(const DecodePlan& plan, std::span<const int32_t> seq_lens, int window,
                         int blocks) {
  const int tiles = plan.shape.tiles, groups = plan.shape.head_groups;
  std::vector<int64_t> steps(seq_lens.size());
  int64_t total = 0;
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    steps[s] = (end_tile(seq_lens[s]) - first_tile(seq_lens[s], window) + tiles - 1) / tiles;
    total += steps[s] * groups;
  }
  const int64_t used = std::min<int64_t>(blocks, total);
  BlockItems of_block(static_cast<size_t>(used));
  size_t seq = 0;
  int group = 0;
  int64_t done = 0, begin = 0;  // stages of (seq, group) handed out; of all
  for (int64_t block = 0; block < used; ++block) {
    const int64_t end = (block + 1) * total / used;
    while (begin < end) {
      const int64_t take = std::min(end - begin, steps[seq] - done);
      const int first = first_tile(seq_lens[seq], window);
      DecodeItem& item = of_block[static_cast<size_t>(block)].emplace_back();
      item.seq = static_cast<int32_t>(seq);
      item.head_group = group;
      item.begin_tile = first + static_cast<int>(done) * tiles;
      item.end_tile =
          std::min(first + static_cast<int>(done + take) * tiles, end_tile(seq_lens[seq]));
      begin += take;
      done += take;
      if (done == steps[seq]) {
        done = 0;
        if (++group == groups) group = 0, ++seq;
      }
    }
  }
  return of_block;
}

/// Splits every sequence by itself, then hands the longest items out first, each to the block that
/// has least.
BlockItems split_by_sequence(const DecodePlan& plan, std::span<const int32_t> seq_lens, int window,
                             int split, int blocks) {
  std::vector<DecodeItem> items;
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    const int end = end_tile(seq_lens[s]);
    const int step = split > 0 ? split / kTileTokens : std::max(end, 1);
    for (int group = 0; group < plan.shape.head_groups; ++group) {
      for (int at = first_tile(seq_lens[s], window); at < end;) {
        const int next = std::min(end, (at / step + 1) * step);
        items.push_back({static_cast<int32_t>(s), group, at, next, -1, 0, 0, -1});
        at = next;
      }
    }
  }
  std::stable_sort(items.begin(), items.end(), [](const DecodeItem& a, const DecodeItem& b) {
    return a.end_tile - a.begin_tile > b.end_tile - b.begin_tile;
  });
  const size_t used = std::min(static_cast<size_t>(blocks), items.size());
  using Load = std::pair<int64_t, size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (size_t b = 0; b < used; ++b) least.push({0, b});
  BlockItems of_block(used);
  for (const DecodeItem& item : items) {
    auto [load, block] = least.top();
    least.pop();
    of_block[block].push_back(item);
    least.push({load + item.end_tile - item.begin_tile + 1, block});
  }
  return of_block;
}

/// Lays the items out as blocks find them: everybody's first, then the others.
void link_items(DecodePlan& plan, const BlockItems& of_block, std::span<const int32_t> seq_lens,
                std::span<const int32_t> query_rows) {
  plan.num_blocks = static_cast<int>(of_block.size());
  for (const auto& mine : of_block) plan.items.push_back(mine.front());
  for (size_t block = 0; block < of_block.size(); ++block) {
    size_t last = block;
    for (size_t i = 1; i < of_block[block].size(); ++i) {
      plan.items[last].next = static_cast<int32_t>(plan.items.size());
      last = plan.items.size();
      plan.items.push_back(of_block[block][i]);
    }
  }
  for (DecodeItem& item : plan.items) {
    item.seq_len = seq_lens[static_cast<size_t>(item.seq)];
    item.query_row = query_rows[static_cast<size_t>(item.seq)];
  }
}

void check_request(const DecodeShape& shape, std::span<const int32_t> seq_lens,
                   std::span<const int32_t> query_rows, const DecodePlanOptions& o) {
  const int stage_keys = shape.tiles * kTileTokens;
  if (o.batch_invariant && o.keys_per_split % stage_keys != 0) {
    throw UnsupportedError(
        fmt::format("attend: keys_per_split: cuda supports multiples of {} here, needed {}",
                    stage_keys, o.keys_per_split));
  }
  if (query_rows.size() != seq_lens.size()) {
    throw ShapeError(fmt::format("attend: query_rows: expected [{}] (num_seqs), found [{}]",
                                 seq_lens.size(), query_rows.size()));
  }
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    if (seq_lens[s] < 1) {
      throw ValueError(fmt::format("attend: sequence {}: decode expected seq_len >= 1, found {}", s,
                                   seq_lens[s]));
    }
  }
}

}  // namespace

DecodeShape decode_shape(const PageLayout& page, int64_t block_stride, int64_t shared_bytes,
                         int max_heads) {
  check_page(page, block_stride);
  for (int heads = static_cast<int>(std::min<int64_t>(max_heads, page.num_kv_heads)); heads > 0;
       --heads) {
    DecodeShape s;
    if (page.num_kv_heads % heads != 0 || !place_pieces(page, heads, s)) continue;
    if (s.tile_bytes > kLargestStage) continue;
    s.tiles =
        1;  // a power of two, so that the 32 page indices that are held ahead hold whole stages
    while (2 * s.tiles * heads <= 8 && 2 * s.stage_bytes() <= kLargestStage) s.tiles *= 2;
    s.stages = static_cast<int>(
        std::min<int64_t>(kLargestRing, (shared_bytes - kSharedForBarriers) / s.stage_bytes()));
    if (s.stages >= 2) return s;
  }
  throw UnsupportedError(fmt::format(
      "attend: cuda supports num_kv_heads with a divisor up to {} whose cells are a multiple of 16 "
      "bytes and of which two stages fit {} bytes of shared memory, needed {} heads of {} bytes",
      max_heads, shared_bytes, page.num_kv_heads, cell_bytes(page)));
}

DecodePlan plan_decode(const DecodeShape& shape, std::span<const int32_t> seq_lens,
                       std::span<const int32_t> query_rows, const DecodePlanOptions& o) {
  check_request(shape, seq_lens, query_rows, o);
  DecodePlan plan;
  plan.shape = shape;
  plan.name = "balanced";
  if (o.batch_invariant)
    plan.name = o.keys_per_split > 0 ? fmt::format("keys{}", o.keys_per_split) : "keys_all";
  link_items(plan,
             o.batch_invariant
                 ? split_by_sequence(plan, seq_lens, o.window, o.keys_per_split, o.blocks)
                 : spread_evenly(plan, seq_lens, o.window, o.blocks),
             seq_lens, query_rows);
  number_partials(plan);
  return plan;
}

}  // namespace kv::cuda
