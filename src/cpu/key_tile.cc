#include "cpu/key_tile.h"

#include <cstring>

namespace kv::cpu {
namespace {

bool lies_in_one_block(const AttendRows& rows, int64_t first, int64_t end) {
  const int64_t block_size = rows.cache->page.block_size;
  return first / block_size == (end - 1) / block_size;
}

/// One row of a copied tile; the values may lie apart.
void copy_row(const uint8_t* from, int64_t stride, int64_t n, int64_t bytes, uint8_t* to) {
  if (stride == bytes) {
    std::memcpy(to, from, static_cast<size_t>(n * bytes));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(to + i * bytes, from + i * stride, static_cast<size_t>(bytes));
  }
}

}  // namespace

RowRange rows_that_see(const AttendRows& rows, int64_t first, int64_t end) {
  RowRange range{0, rows.num_rows};
  while (range.begin < range.end && rows.positions[range.begin] < first) ++range.begin;
  if (rows.window == 0) return range;
  while (range.end > range.begin && rows.positions[range.end - 1] - rows.window + 1 >= end) {
    --range.end;
  }
  return range;
}

int64_t unseen_keys(const AttendRows& rows, int64_t first, int64_t end) {
  if (rows.window == 0) return 0;
  const int64_t begin = rows.positions[0] - rows.window + 1;
  return std::clamp<int64_t>(begin - first, 0, end - first);
}

void load_scales(const AttendRows& rows, Side which, int64_t first, int64_t end, float factor,
                 float* scales) {
  const SideLayout& side = rows.cache->page.side(which);
  const bool is_inline = has_inline_scales(side.format);
  std::fill_n(scales, kKeysPerTile, is_inline ? 1.0f : factor);
  if (!is_inline) return;
  const auto load = [&](const uint8_t* page, int64_t slot, int64_t at, int64_t count) {
    copy_row(page + side.scale_byte(rows.kv_head, slot), side.scale_slot_stride, count,
             sizeof(float), reinterpret_cast<uint8_t*>(scales + at));
  };
  for_each_piece(rows, first, end, load);
#pragma omp simd
  for (int64_t i = 0; i < kKeysPerTile; ++i) scales[i] *= factor;
  std::fill_n(scales, unseen_keys(rows, first, end), 0.0f);
}

StoredRows stored_keys(const AttendRows& rows, int64_t first, int64_t end, uint8_t* copy) {
  const PageLayout& page = rows.cache->page;
  const SideLayout& side = page.side(Side::kK);
  const int64_t bytes = value_bytes(side.format);
  if (end - first == kKeysPerTile && side.slot_stride == bytes &&
      lies_in_one_block(rows, first, end)) {
    const uint8_t* block = rows.cache->block(rows.blocks[first / page.block_size]);
    return {block + side.byte(rows.kv_head, first % page.block_size, 0), side.dim_stride};
  }
  const int64_t stride = kKeysPerTile * bytes;
  if (end - first < kKeysPerTile) std::memset(copy, 0, static_cast<size_t>(page.head_dim * stride));
  const auto take = [&](const uint8_t* block, int64_t slot, int64_t at, int64_t count) {
    for (int64_t d = 0; d < page.head_dim; ++d) {
      copy_row(block + side.byte(rows.kv_head, slot, d), side.slot_stride, count, bytes,
               copy + d * stride + at * bytes);
    }
  };
  for_each_piece(rows, first, end, take);
  return {copy, stride};
}

StoredRows stored_values(const AttendRows& rows, int64_t first, int64_t end, uint8_t* copy) {
  const PageLayout& page = rows.cache->page;
  const SideLayout& side = page.side(Side::kV);
  const int64_t bytes = value_bytes(side.format);
  if (side.dim_stride == bytes && lies_in_one_block(rows, first, end)) {
    const uint8_t* block = rows.cache->block(rows.blocks[first / page.block_size]);
    return {block + side.byte(rows.kv_head, first % page.block_size, 0), side.slot_stride};
  }
  const int64_t stride = page.head_dim * bytes;
  const auto take = [&](const uint8_t* block, int64_t slot, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      copy_row(block + side.byte(rows.kv_head, slot + i, 0), side.dim_stride, page.head_dim, bytes,
               copy + (at + i) * stride);
    }
  };
  for_each_piece(rows, first, end, take);
  return {copy, stride};
}

}  // namespace kv::cpu
