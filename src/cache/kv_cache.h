#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/capacity.h"
#include "cache/layout.h"

namespace kv {

/// The pages of one layer, as a kernel sees them: page of block b starts at data + b *
/// block_stride.
struct CacheView {
  uint8_t* data = nullptr;
  int64_t block_stride = 0;  // bytes
  int64_t num_blocks = 0;
  PageLayout page;

  uint8_t* block(int64_t b) const { return data + b * block_stride; }
};

/// A paged cache in host memory: one region of pages per layer, each with its own format. Layers
/// that keep as many tokens share a pool of blocks: the first pool has those that keep all (or the
/// most), one more each window that is smaller than the cache.
class KvCache {
 public:
  /// Allocates pages for num_blocks blocks per layer, for a window layer those of pool_blocks(),
  /// every byte 0xff: a slot that is read before it is written gives NaN, not a plausible number.
  /// Throws ValueError on sizes.
  KvCache(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
          int64_t block_size, int64_t num_blocks, PageOrder order, const WindowRoom& room = {});

  int64_t block_size() const { return block_size_; }
  int64_t num_layers() const { return static_cast<int64_t>(views_.size()); }
  const CacheView& layer(int64_t layer) const { return views_[static_cast<size_t>(layer)]; }

  size_t num_pools() const { return pools_.size(); }
  BlockPool& pool(size_t pool = 0) { return pools_[pool].blocks; }
  /// Tokens that the pool's layers see; 0 = all.
  int64_t window(size_t pool) const { return pools_[pool].window; }
  size_t pool_of(int64_t layer) const { return pool_of_[static_cast<size_t>(layer)]; }

  /// Bytes really allocated for pages; equals pool_bytes(...) of capacity.h.
  int64_t allocated_bytes() const { return allocated_bytes_; }

  /// Copies the pages of one block to another, in all layers of the pool.
  void copy_block(size_t pool, int32_t from, int32_t to);

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  struct Pool {
    int64_t window;
    BlockPool blocks;
  };
  void sort_into_pools(const std::vector<LayerGeometry>& layers, int64_t num_blocks,
                       const WindowRoom& room);

  int64_t block_size_;
  std::vector<Pool> pools_;
  std::vector<size_t> pool_of_;  // [layers]
  int64_t allocated_bytes_ = 0;
  std::unique_ptr<uint8_t[], Free> memory_;
  std::vector<CacheView> views_;
};

/// The blocks of one sequence in every pool, and how many of its tokens are in them. Blocks may be
/// shared with other sequences; a shared block is copied before the first write to it. Move-only;
/// the destructor gives the blocks back.
class BlockTable {
 public:
  explicit BlockTable(KvCache& cache) : cache_(&cache), blocks_(cache.num_pools()) {}
  ~BlockTable();
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;

  /// Another sequence with the same tokens, holding the same blocks.
  BlockTable fork() const;

  /// Makes room for `count` more tokens. Either for all of them or, when a pool has too few blocks,
  /// for none: then throws ValueError.
  void append(int64_t count);

  /// Blocks that append(count) takes from a pool.
  int64_t blocks_needed(size_t pool, int64_t count) const;

  /// Gives back the blocks of windows that no query from now on sees. Those that one at `back_to`
  /// or later needs stay, so that truncate(back_to) is possible.
  void leave_windows(int64_t back_to);

  /// Forgets the tokens from position `seq_len` on. Throws ValueError when the windows that a next
  /// token would see were left; none but 0 then.
  void truncate(int64_t seq_len);

  int64_t seq_len() const { return seq_len_; }
  /// [blocks of seq_len tokens]; -1 = given back.
  std::span<const int32_t> blocks(size_t pool = 0) const { return blocks_[pool]; }
  /// Where the tokens [first, first + count) lie: block * block_size + offset.
  std::vector<int64_t> slots(size_t pool, int64_t first, int64_t count) const;
  KvCache& cache() const { return *cache_; }

 private:
  void own_last_block(size_t pool);

  KvCache* cache_;
  std::vector<std::vector<int32_t>> blocks_;  // [pools]
  int64_t seq_len_ = 0;
};

}  // namespace kv
