#include "cache/layout.h"

#include <fmt/core.h>

#include "kvscale/error.h"

namespace kv {
namespace {

void check_positive(std::string_view what, int64_t value) {
  if (value <= 0)
    throw ValueError(fmt::format("page layout: {}: expected > 0, found {}", what, value));
}

/// vLLM's cell: one (head, slot) holds K, its scale, V, its scale, without gaps.
void place_cells(PageLayout& page, int64_t cell, int64_t head_stride, int64_t slot_stride) {
  int64_t at = 0;
  for (SideLayout& side : page.sides) {
    side.base = at;
    side.scale_base = at + page.head_dim * value_bytes(side.format);
    side.head_stride = side.scale_head_stride = head_stride;
    side.slot_stride = side.scale_slot_stride = slot_stride;
    side.dim_stride = value_bytes(side.format);
    at += side_bytes(side.format, page.head_dim);
  }
  page.page_bytes = cell * page.num_kv_heads * page.block_size;
}

/// One plane per head and side; K has its dimensions outermost.
void place_planes(PageLayout& page, int64_t cell) {
  const int64_t head_bytes = cell * page.block_size;
  int64_t at = 0;
  for (size_t s = 0; s < 2; ++s) {
    SideLayout& side = page.sides[s];
    const int64_t value = value_bytes(side.format);
    side.base = at;
    side.head_stride = side.scale_head_stride = head_bytes;
    side.slot_stride = s == 0 ? value : page.head_dim * value;
    side.dim_stride = s == 0 ? page.block_size * value : value;
    side.scale_base = at + page.head_dim * page.block_size * value;
    side.scale_slot_stride = 4;
    at += side_bytes(side.format, page.head_dim) * page.block_size;
  }
  page.page_bytes = head_bytes * page.num_kv_heads;
}

}  // namespace

std::string_view name(Format format) {
  switch (format) {
    case Format::kBf16:
      return "bf16";
    case Format::kE4m3PerTensor:
      return "e4m3_per_tensor";
    case Format::kE4m3PerHead:
      return "e4m3_per_head";
    case Format::kE4m3PerTokenHead:
      return "e4m3_per_token_head";
    case Format::kE4m3PerTokenTile:
      return "e4m3_per_token_tile";
    case Format::kQ8Block32:
      return "q8_0";
  }
  throw ValueError("format: value outside the enumeration");
}

namespace {

void expect_stored_here(Format format) {
  if (format != Format::kQ8Block32) return;
  throw UnsupportedError(
      "page layout: q8_0: llama.cpp's format, which kvscale counts and does not store");
}

}  // namespace

PageLayout PageLayout::make(Format k, Format v, int64_t num_kv_heads, int64_t head_dim,
                            int64_t block_size, PageOrder order) {
  check_positive("num_kv_heads", num_kv_heads);
  check_positive("head_dim", head_dim);
  check_positive("block_size", block_size);
  if (k == Format::kE4m3PerTokenTile || v == Format::kE4m3PerTokenTile) {
    throw UnsupportedError(fmt::format("page layout: {}: expected latents (MLA), found K and V",
                                       name(Format::kE4m3PerTokenTile)));
  }
  expect_stored_here(k);
  expect_stored_here(v);
  if (head_dim % 4 != 0) {
    throw ValueError(
        fmt::format("page layout: head_dim: expected a multiple of 4, found {}", head_dim));
  }
  PageLayout page;
  page.num_kv_heads = num_kv_heads;
  page.head_dim = head_dim;
  page.value_dim = head_dim;
  page.block_size = block_size;
  page.order = order;
  page.sides[0].format = k;
  page.sides[1].format = v;
  const int64_t cell = side_bytes(k, head_dim) + side_bytes(v, head_dim);
  if (order == PageOrder::kNhd) place_cells(page, cell, cell, cell * num_kv_heads);
  if (order == PageOrder::kHnd) place_cells(page, cell, cell * block_size, cell);
  if (order == PageOrder::kCpu) place_planes(page, cell);
  return page;
}

LatentBytes latent_bytes(Format format, int64_t head_dim, int64_t latent_values) {
  expect_stored_here(format);
  if (format == Format::kE4m3PerTokenHead) {
    throw UnsupportedError(
        "page layout: e4m3_per_token_head: no backend for MLA accepts a scale per token and head");
  }
  if (format != Format::kE4m3PerTokenTile) return {head_dim * value_bytes(format), 0};
  if (latent_values % kLatentTile != 0) {
    throw UnsupportedError(
        fmt::format("page layout: e4m3_per_token_tile: expected a latent of a multiple of {} "
                    "values, found {}",
                    kLatentTile, latent_values));
  }
  return {latent_values + 2 * (head_dim - latent_values), latent_values / kLatentTile * 4};
}

PageLayout PageLayout::make_latent(Format format, int64_t head_dim, int64_t latent_values,
                                   int64_t block_size, PageOrder order) {
  check_positive("head_dim", head_dim);
  check_positive("latent_values", latent_values);
  check_positive("block_size", block_size);
  if (head_dim % 4 != 0 || latent_values % 4 != 0 || latent_values >= head_dim) {
    throw ValueError(
        fmt::format("page layout: expected multiples of 4 and fewer latent values than head_dim, "
                    "found {} of {}",
                    latent_values, head_dim));
  }
  const LatentBytes bytes = latent_bytes(format, head_dim, latent_values);
  PageLayout page;
  page.num_kv_heads = 1;
  page.head_dim = head_dim;
  page.value_dim = latent_values;
  page.holds_latents = true;
  page.block_size = block_size;
  page.order = order;
  SideLayout side;
  side.format = format;
  side.slot_stride = side.scale_slot_stride = bytes.values + bytes.scales;
  side.dim_stride = value_bytes(format);
  side.scale_base = latent_values;
  page.bf16_base = side.scale_base + bytes.scales;
  page.page_bytes = side.slot_stride * block_size;
  page.sides = {side, side};
  return page;
}

}  // namespace kv
