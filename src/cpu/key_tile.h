#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/attend_rows.h"

namespace kv::cpu {

/// The rows that see a key of the tile [first, end): [begin, end) of the item's rows. The others
/// would only add zeros.
struct RowRange {
  int64_t begin, end;
};
RowRange rows_that_see(const AttendRows& rows, int64_t first, int64_t end);

/// Keys at the beginning of the tile [first, end) that lie before every row's window. Nobody sees
/// them, and their slots may hold anything: no factor of a product may come from there.
int64_t unseen_keys(const AttendRows& rows, int64_t first, int64_t end);

/// scales[64]: the inline scales of the tile [first, end) times `factor`, or `factor` where the
/// format has none.
void load_scales(const AttendRows& rows, Side which, int64_t first, int64_t end, float factor,
                 float* scales);

/// Calls fn(page, slot, offset in the tile, count) for each piece of the tile [first, end) that
/// lies in one block.
template <class Fn>
void for_each_piece(const AttendRows& rows, int64_t first, int64_t end, const Fn& fn) {
  const int64_t block_size = rows.cache->page.block_size;
  for (int64_t key = first; key < end;) {
    const int64_t slot = key % block_size;
    const int64_t count = std::min(block_size - slot, end - key);
    fn(rows.cache->block(rows.blocks[key / block_size]), slot, key - first, count);
    key += count;
  }
}

/// Stored values as a matrix: row i begins at data + i * stride, its values lie side by side.
struct StoredRows {
  const uint8_t* data;
  int64_t stride;  // bytes
};

/// The tile's keys, head_dim rows of 64 values along the keys. They are read where they lie when
/// the tile fills part of one page whose order allows that; else they are copied to `copy`
/// (head_dim * 64 values), 0 where there is no key.
StoredRows stored_keys(const AttendRows& rows, int64_t first, int64_t end, uint8_t* copy);

/// The tile's values, end - first rows of head_dim; likewise.
StoredRows stored_values(const AttendRows& rows, int64_t first, int64_t end, uint8_t* copy);

}  // namespace kv::cpu
