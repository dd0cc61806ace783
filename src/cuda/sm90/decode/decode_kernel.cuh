#pragma once

#include "cuda/sm90/decode/decode_params.h"
#include "cuda/sm90/decode/tile.cuh"
#include "cuda/sm90/launch.cuh"
#include "cuda/sm90/ptx.cuh"

// One block takes the items of its plan one after another. Its last warp copies whole pages (or a
// head group's part of them) into a ring in shared memory; every other warp owns one KV head of
// every stage and keeps its queries and its part of the result in registers. Pages that the launch
// before cannot have written are under way before it ends. See docs/kernels/decode.md.

namespace kv::cuda {

inline constexpr int kBarrierBytes = 256;  // 2 barriers for each of up to 16 stages
inline constexpr int kMaxDecodeThreads = 288;

/// The ring's barriers and stages by number.
struct Ring {
  uint32_t barriers, stages_at;
  int stages, stage_bytes;

  __device__ uint32_t full(int stage) const { return barriers + 16 * stage; }
  __device__ uint32_t empty(int stage) const { return barriers + 16 * stage + 8; }
  __device__ uint32_t at(int stage) const { return stages_at + stage * stage_bytes; }
};

/// Position in the ring: advances stage by stage, the parity flips on every round.
struct RingCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// The copying warp. Lane i holds the block of tile base + i, and of base + 32 + i: indices are
/// looked up 32 tiles before they are needed.
class PageCopier {
 public:
  __device__ PageCopier(const DecodeParams& p, const Ring& ring) : p_(p), ring_(ring) {}

  __device__ void run(DecodeItem item) {
    const int lane = threadIdx.x % 32;
    if (p_.fresh_keys < 0) settle();
    int32_t ahead = look_up(item, item.begin_tile + lane);
    while (true) {
      DecodeItem next = item;
      if (item.next >= 0) next = p_.items[item.next];
      ahead = run_item(item, next, ahead, lane);
      if (item.next < 0) return;
      item = next;
    }
  }

 private:
  /// `ahead` are the item's first blocks; returns the next item's.
  __device__ int32_t run_item(const DecodeItem& item, const DecodeItem& next, int32_t ahead,
                              int lane) {
    for (int base = item.begin_tile; base < item.end_tile; base += 32) {
      const int32_t blocks = ahead;
      const bool last = base + 32 >= item.end_tile;
      ahead = last ? look_up(next, next.begin_tile + lane) : look_up(item, base + 32 + lane);
      const int end = min(base + 32, item.end_tile);
      for (int tile = base; tile < end; tile += p_.tiles) {
        copy_stage(item, tile, min(p_.tiles, end - tile), blocks, base, lane);
      }
    }
    return ahead;
  }

  __device__ int32_t look_up(const DecodeItem& item, int tile) const {
    if (tile >= item.end_tile) return 0;
    return __ldg(p_.block_table + item.seq * p_.table_stride + tile * kTileTokens / p_.block_size);
  }

  /// Waits for the launch before this one, once.
  __device__ void settle() {
    if (!is_settled_) wait_for_predecessor();
    is_settled_ = true;
  }

  __device__ void copy_stage(const DecodeItem& item, int tile, int count, int32_t blocks, int base,
                             int lane) {
    if ((tile + count) * kTileTokens > item.seq_len - p_.fresh_keys) settle();
    barrier_wait(ring_.empty(cursor_.stage), cursor_.parity ^ 1);
    const uint32_t full = ring_.full(cursor_.stage), to = ring_.at(cursor_.stage);
    const int pieces = count * p_.pieces_per_tile;
    if (lane == 0) barrier_expect_bytes(full, pieces * p_.piece_bytes);
    __syncwarp();
    for (int first = 0; first < pieces; first += 32) {
      const int piece = first + lane, t = piece / p_.pieces_per_tile;
      const int32_t block = __shfl_sync(~0u, blocks, tile + t - base);
      if (piece >= pieces) continue;
      const int slot = (tile + t) * kTileTokens % p_.block_size;
      const uint8_t* from = p_.cache + block * p_.block_stride + slot * p_.slot_stride +
                            item.head_group * p_.heads * p_.head_stride +
                            (piece - t * p_.pieces_per_tile) * p_.piece_step;
      bulk_copy(to + piece * p_.piece_bytes, from, p_.piece_bytes, full);
    }
    cursor_.advance(ring_.stages);
  }

  const DecodeParams& p_;
  const Ring& ring_;
  RingCursor cursor_;
  bool is_settled_ = false;
};

/// A computing warp: one KV head of the tiles t, t + tiles, ... of an item.
template <class Cell, int kQueryTiles, bool kFp8Math>
class HeadWorker {
 public:
  __device__ HeadWorker(const DecodeParams& p, const Ring& ring, int warp)
      : p_(p), ring_(ring), head_(warp % p.heads), tile_(warp / p.heads) {}

  __device__ void run(DecodeItem item) {
    while (true) {
      DecodeItem next = item;
      if (item.next >= 0) {
        next = p_.items[item.next];
        fetch_queries(next);
      }
      run_item(item);
      if (item.next < 0) return;
      item = next;
    }
  }

 private:
  /// Brings the next item's queries into the L2 while this one is computed.
  __device__ void fetch_queries(const DecodeItem& item) const {
    constexpr int kLines = (Cell::kHeadDim + 63) / 64;
    const int64_t first = (int64_t{item.head_group} * p_.heads + head_) * p_.q_per_kv;
    for (int i = threadIdx.x % 32; i < p_.q_per_kv * kLines; i += 32) {
      const uint16_t* at = p_.q + item.query_row * p_.q_row_stride +
                           (first + i / kLines) * p_.q_head_stride + i % kLines * 64;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
  }

  __device__ void run_item(const DecodeItem& item) {
    const int seq_len = item.seq_len;
    const int first_key = p_.window > 0 ? max(0, seq_len - p_.window) : 0;
    const int kv_head = item.head_group * p_.heads + head_;
    TileState<Cell, kQueryTiles, kFp8Math> state(p_);
    state.load_queries(item.query_row, kv_head);
    int tile = item.begin_tile;
    if constexpr (Cell::kTilesAtOnce > 1 && kQueryTiles == 1) {
      constexpr int kTiles = Cell::kTilesAtOnce;
      for (; tile + (kTiles - 1) * p_.tiles < item.end_tile; tile += kTiles * p_.tiles) {
        add_stages<kTiles>(state, tile + tile_, item.end_tile, first_key, seq_len);
      }
    }
    for (; tile < item.end_tile; tile += p_.tiles) {
      add_stages<1>(state, tile + tile_, item.end_tile, first_key, seq_len);
    }
    if (item.partial < 0) {
      state.store_final(item.query_row, kv_head);
    } else {
      state.store_partial(item.partial + tile_, head_ * p_.q_per_kv);
    }
  }

  /// The next kTiles stages, of which this warp's tiles are `mine` and every p.tiles-th after; only
  /// the last may lie behind the end.
  template <int kTiles, class State>
  __device__ void add_stages(State& state, int mine, int end_tile, int first_key, int seq_len) {
    uint32_t cells[kTiles];
    int first_token[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      cells[t] = wait_for_stage();
      first_token[t] = (mine + t * p_.tiles) * kTileTokens;
    }
    if (mine + (kTiles - 1) * p_.tiles < end_tile) {
      state.add_tiles(cells, first_token, first_key, seq_len);
    } else if constexpr (kTiles > 1) {
      uint32_t cells_left[kTiles - 1];
      int tokens_left[kTiles - 1];
#pragma unroll
      for (int t = 0; t + 1 < kTiles; ++t) {
        cells_left[t] = cells[t];
        tokens_left[t] = first_token[t];
      }
      state.add_tiles(cells_left, tokens_left, first_key, seq_len);
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) release_stage();
  }

  /// Where this warp's cells of the next stage lie.
  __device__ uint32_t wait_for_stage() {
    barrier_wait(ring_.full(next_.stage), next_.parity);
    const uint32_t cells =
        ring_.at(next_.stage) + tile_ * p_.tile_bytes + head_ * p_.smem_head_stride;
    next_.advance(ring_.stages);
    return cells;
  }
  /// Gives the oldest stage that was waited for back to the copies.
  __device__ void release_stage() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring_.empty(oldest_.stage));
    oldest_.advance(ring_.stages);
  }

  const DecodeParams& p_;
  const Ring& ring_;
  RingCursor next_, oldest_;
  int head_, tile_;
};

__device__ inline Ring make_ring(const DecodeParams& p, uint32_t shared, int warps) {
  const Ring ring{shared, shared + kBarrierBytes, p.stages, p.tiles * p.tile_bytes};
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      barrier_init(ring.full(s), 1);
      barrier_init(ring.empty(s), warps);
    }
    barrier_init_fence();
  }
  __syncthreads();
  return ring;
}

template <class Cell, int kQueryTiles, bool kFp8Math>
__global__ void __launch_bounds__(kMaxDecodeThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int warps = p.heads * p.tiles, warp = threadIdx.x / 32;
  const DecodeItem first = p.items[blockIdx.x];  // the plan is older than the launch before
  const Ring ring = make_ring(p, shared_address(shared), warps);
  let_dependents_start();
  if (warp == warps) {
    PageCopier(p, ring).run(first);
  } else {
    wait_for_predecessor();
    HeadWorker<Cell, kQueryTiles, kFp8Math>(p, ring, warp).run(first);
  }
}

template <class Cell, int kQueryTiles, bool kFp8Math>
void launch_decode_variant(const DecodeLaunch& l) {
  auto* kernel = decode_kernel<Cell, kQueryTiles, kFp8Math>;
  static const int prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(device_info().shared_bytes));
  check(prepared, "attend: shared memory of the decode kernel");
  launch_overlapping("attend", kernel, l.blocks, l.threads, l.shared_bytes, l.stream, l.params);
}

}  // namespace kv::cuda
