#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/layout.h"

namespace kv::cuda {

/// Keys are taken in tiles of 16 slots: what one tensor-core instruction takes, and what every
/// block size of the engines is a multiple of.
inline constexpr int kTileTokens = 16;

/// How the pages of one geometry pass through a thread block's shared memory. A stage of the ring
/// holds `tiles` tiles of `heads` KV heads; one warp computes each (tile, head) of a stage. A tile
/// arrives in `pieces_per_tile` bulk copies of `piece_bytes` contiguous bytes, which lie side by
/// side in shared memory.
struct DecodeShape {
  int heads = 0, tiles = 0;  // heads * tiles warps compute, one more copies
  int head_groups = 0;       // num_kv_heads / heads
  int pieces_per_tile = 0, piece_bytes = 0, tile_bytes = 0;
  int64_t piece_step = 0;                          // from piece to piece in the cache
  int smem_head_stride = 0, smem_slot_stride = 0;  // of a cell in a tile in shared memory
  int stages = 0;

  int stage_bytes() const { return tiles * tile_bytes; }
  int warps() const { return heads * tiles; }
};

/// The shape for these pages in `shared_bytes` of a block's shared memory; fewer `max_heads` of a
/// block make more, smaller blocks. Throws UnsupportedError naming what is needed and what is
/// supported: block_size a multiple of 16, NHD or HND, pieces of a multiple of 16 bytes, two stages
/// or more.
DecodeShape decode_shape(const PageLayout& page, int64_t block_stride, int64_t shared_bytes,
                         int max_heads = 8);

/// A run of tiles [begin_tile, end_tile) of one sequence and head group, done by one block. Holds
/// all that the block needs to start: one look-up, and the loads of pages and queries are under
/// way.
struct DecodeItem {
  int32_t seq = 0, head_group = 0, begin_tile = 0, end_tile = 0;
  int32_t partial = -1;  // first of `tiles` partial results; -1: the result is final
  int32_t seq_len = 0, query_row = 0;
  int32_t next = -1;  // the block's next item
};

/// Partial results of one sequence and head group, to be combined in this order.
struct DecodeMerge {
  int32_t query_row = 0, head_group = 0, first_partial = 0, num_partials = 0;
};

/// Who does what in one launch. Part of the record: `name` says how the keys are split.
struct DecodePlan {
  DecodeShape shape;
  int num_blocks = 0;
  std::vector<DecodeItem> items;  // block b starts with items[b] and goes on with `next`
  std::vector<DecodeMerge> merges;
  int num_partials = 0;
  std::string name;  // "balanced" or "keys1024", "keys_all": batch-invariant
};

struct DecodePlanOptions {
  int blocks = 132;  // that can be resident at once
  int window = 0;    // as AttendParams::window
  /// true: a sequence is split at multiples of keys_per_split (0: not at all), whatever else is in
  /// the batch, and its bits do not depend on the batch. false: work is spread evenly.
  bool batch_invariant = false;
  int keys_per_split = 0;
};

/// Plans one decode step: one query at the end of each sequence.
///
/// seq_lens    [num_seqs] >= 1
/// query_rows  [num_seqs] row of q and out of each sequence's query
///
/// Throws UnsupportedError when keys_per_split is no multiple of a stage's keys, ValueError.
DecodePlan plan_decode(const DecodeShape& shape, std::span<const int32_t> seq_lens,
                       std::span<const int32_t> query_rows, const DecodePlanOptions& options);

}  // namespace kv::cuda
