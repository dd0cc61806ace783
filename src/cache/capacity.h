#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/layout.h"

namespace kv {

/// What of one layer the cache arithmetic needs.
struct LayerGeometry {
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  // tokens a sliding-window layer keeps; 0 = all
  // Not 0: one vector of head_dim values is stored, and V is its first so many values (MLA).
  int64_t latent_values = 0;
};

/// How one layer is stored.
struct LayerFormat {
  Format k = Format::kBf16;
  Format v = Format::kBf16;
};

/// Bytes of a cache, every term apart. Codes and inline scales grow with the tokens, static scales
/// do not.
struct CacheBytes {
  int64_t code_bytes = 0;
  int64_t scale_bytes = 0;         // inline
  int64_t static_scale_bytes = 0;  // outside the pages: F32, one or num_kv_heads per layer and side
  int64_t total_bytes() const { return code_bytes + scale_bytes + static_scale_bytes; }
};

/// Bytes that `tokens` tokens of one sequence take: sum over layers of min(tokens, window) *
/// num_kv_heads * (K bytes + V bytes + inline scales); a latent is one vector, stored in the format
/// of K, with one static scale. Throws ValueError when the sizes differ, a
/// number is negative or the sum leaves int64. The one formula that `plan`, the allocator and the
/// report use.
CacheBytes cache_bytes(const std::vector<LayerGeometry>& layers,
                       const std::vector<LayerFormat>& formats, int64_t tokens);

/// Bytes of one block (block_size tokens) over all layers, windows not applied: what the pool
/// allocates.
int64_t block_bytes(const std::vector<LayerGeometry>& layers,
                    const std::vector<LayerFormat>& formats, int64_t block_size);

/// Kernels may read the keys of a window from the multiple of this before its first: blocks are
/// given back when they end before that.
inline constexpr int64_t kWindowAlignment = 64;

/// The first key that must be in the cache for a query at `position`: 0 without a window.
int64_t first_key_kept(int64_t window, int64_t position);

/// What the pools of window layers must hold at once. No sequences: windows are not applied, every
/// layer keeps all tokens.
struct WindowRoom {
  int64_t sequences = 0;
  int64_t tokens_per_pass = 0;  // new ones of one sequence
};

/// Blocks of a layer's pool in a cache for `num_blocks`: all of them without a window; else what
/// the sequences' windows take before and after a call, and a pass's tokens, in whole blocks.
int64_t pool_blocks(const LayerGeometry& layer, int64_t block_size, int64_t num_blocks,
                    const WindowRoom& room);

/// Bytes of all pools' pages: what KvCache allocates.
int64_t pool_bytes(const std::vector<LayerGeometry>& layers,
                   const std::vector<LayerFormat>& formats, int64_t block_size, int64_t num_blocks,
                   const WindowRoom& room);

/// Tokens that fit into `budget_bytes`, in whole blocks, the static scales taken off first; windows
/// not applied.
int64_t tokens_that_fit(const std::vector<LayerGeometry>& layers,
                        const std::vector<LayerFormat>& formats, int64_t block_size,
                        int64_t budget_bytes);

}  // namespace kv
