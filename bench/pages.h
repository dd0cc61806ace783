#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache.h"
#include "cuda/device.h"

namespace kv::bench {

/// Pages of one geometry on the card, filled with N(0, 1) keys and values through store_kv.
class FilledPages {
 public:
  FilledPages(Format format, PageOrder order, int64_t num_kv_heads, int64_t head_dim,
              int64_t block_size, int64_t num_blocks);

  const CacheView& view() const { return view_; }
  const float* scales() const { return scales_.as<const float>(); }
  const std::vector<float>& host_scales() const { return host_scales_; }

 private:
  void fill();

  CacheView view_;
  cuda::DeviceBuffer pages_, scales_;
  std::vector<float> host_scales_;
};

/// A random order of the blocks 0 ... num_blocks - 1.
std::vector<int32_t> shuffled_blocks(int64_t num_blocks);

}  // namespace kv::bench
