#include "cache/block_pool.h"

#include <fmt/core.h>

#include <limits>

#include "kvscale/error.h"

namespace kv {

BlockPool::BlockPool(int64_t num_blocks) {
  if (num_blocks < 0 || num_blocks > std::numeric_limits<int32_t>::max()) {
    throw ValueError(
        fmt::format("block pool: expected 0 to 2^31 - 1 blocks, found {}", num_blocks));
  }
  holders_.assign(static_cast<size_t>(num_blocks), 0);
  for (int64_t i = num_blocks - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

int32_t BlockPool::allocate() {
  if (free_.empty())
    throw ValueError(fmt::format("block pool: all {} blocks are in use", holders_.size()));
  const int32_t block = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(block)] = 1;
  return block;
}

int32_t& BlockPool::holders(int32_t block) {
  if (block < 0 || block >= num_blocks() || holders_[static_cast<size_t>(block)] == 0) {
    throw ValueError(fmt::format("block pool: nobody holds block {}", block));
  }
  return holders_[static_cast<size_t>(block)];
}

void BlockPool::hold(int32_t block) { ++holders(block); }

void BlockPool::release(int32_t block) {
  if (--holders(block) == 0) free_.push_back(block);
}

}  // namespace kv
