#pragma once

#include <cstdint>

#include "cache/kv_cache.h"

namespace kv::cuda {

/// What the copy engine needs to know of a tensor in device memory (CUtensorMap).
struct alignas(64) TensorMap {
  uint64_t words[16] = {};
};

/// How 16 slots of one head come out of pages by tensor copies: coordinates are (4-byte word within
/// a row, row within a block, head, block), and a box has `words` of each of `rows` rows.
///
/// A row is a slot; where slots do not lie a multiple of 16 bytes apart, a pair of them. Words of a
/// box that lie behind a row's end arrive as zeros.
struct PageMap {
  TensorMap map;
  int pair_words = 0;  // 0: a row is a slot; else words from a pair's first to its second
  int head_words = 0, head_step = 0;  // from head to head in the first and the third coordinate
};

/// Throws DeviceError when the driver refuses.
PageMap page_map(const CacheView& cache, int words);

}  // namespace kv::cuda
