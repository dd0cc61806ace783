#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kv {

/// Hands out blocks by number and counts who holds each. Not thread-safe: one engine owns one pool.
class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(holders_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

  /// A block held once. Throws ValueError when none is free, saying how many there are.
  int32_t allocate();

  /// One more, one fewer holder; a block without holders is free again. Throws ValueError for a
  /// block that nobody holds.
  void hold(int32_t block);
  void release(int32_t block);

  bool is_shared(int32_t block) const { return holders_[static_cast<size_t>(block)] > 1; }

 private:
  int32_t& holders(int32_t block);

  std::vector<int32_t> holders_;
  std::vector<int32_t>
      free_;  // a stack: the block freed last is the one whose bytes are still in the CPU's caches
};

}  // namespace kv
