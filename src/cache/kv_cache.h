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

/// A paged cache in host memory: one pool of blocks, one region of pages per layer, each with its
/// own format.
class KvCache {
 public:
  /// Allocates num_blocks pages per layer, every byte 0xff: a slot that is read before it is
  /// written gives NaN, not a plausible number. Throws ValueError on sizes.
  KvCache(const std::vector<LayerGeometry>& layers, const std::vector<LayerFormat>& formats,
          int64_t block_size, int64_t num_blocks, PageOrder order);

  int64_t block_size() const { return block_size_; }
  int64_t num_layers() const { return static_cast<int64_t>(views_.size()); }
  const CacheView& layer(int64_t layer) const { return views_[static_cast<size_t>(layer)]; }
  BlockPool& pool() { return pool_; }

  /// Bytes really allocated for pages; equals num_blocks * block_bytes(...) of capacity.h.
  int64_t allocated_bytes() const { return allocated_bytes_; }

  /// Copies the pages of one block to another, in all layers.
  void copy_block(int32_t from, int32_t to);

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  int64_t block_size_;
  BlockPool pool_;
  int64_t allocated_bytes_ = 0;
  std::unique_ptr<uint8_t[], Free> memory_;
  std::vector<CacheView> views_;
};

/// The blocks of one sequence, and how many of its tokens are in them. Blocks may be shared with
/// other sequences; a shared block is copied before the first write to it. Move-only; the
/// destructor gives the blocks back.
class BlockTable {
 public:
  explicit BlockTable(KvCache& cache) : cache_(&cache) {}
  ~BlockTable();
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;

  /// Another sequence with the same tokens, holding the same blocks.
  BlockTable fork() const;

  /// Makes room for `count` more tokens and gives their slots (block * block_size + offset). Either
  /// all of them or, when the pool has too few blocks, none: then throws ValueError.
  std::vector<int64_t> append(int64_t count);

  /// Forgets the tokens from position `seq_len` on.
  void truncate(int64_t seq_len);

  int64_t seq_len() const { return seq_len_; }
  std::span<const int32_t> blocks() const { return blocks_; }
  KvCache& cache() const { return *cache_; }

 private:
  void own_last_block();

  KvCache* cache_;
  std::vector<int32_t> blocks_;
  int64_t seq_len_ = 0;
};

}  // namespace kv
