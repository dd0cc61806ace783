#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "ops/cache_checks.h"
#include "ops/store_kv.h"

namespace kv {
namespace {

float inline_scale(const uint16_t* x, int64_t head_dim) {
  float amax = 0;
  for (int64_t d = 0; d < head_dim; ++d) {
    const float magnitude = std::fabs(bf16::decode(x[d]));
    if (std::isfinite(magnitude)) amax = std::max(amax, magnitude);
  }
  return std::max(amax / 448.0f, 1e-6f);
}

void store_tiles(const StoreKvParams& p, const uint16_t* x, uint8_t* block, int64_t slot) {
  const PageLayout& page = p.cache.page;
  const SideLayout& side = page.side(Side::kK);
  for (int64_t first = 0; first < page.value_dim; first += kLatentTile) {
    float amax = 0;
    for (int64_t d = first; d < first + kLatentTile; ++d) {
      const float magnitude = std::fabs(bf16::decode(x[d]));
      if (std::isfinite(magnitude)) amax = std::max(amax, magnitude);
    }
    const float scale = std::max(amax / 448.0f, std::numeric_limits<float>::min());
    std::memcpy(block + side.scale_byte(0, slot) + first / kLatentTile * 4, &scale, 4);
    for (int64_t d = first; d < first + kLatentTile; ++d)
      block[side.byte(0, slot, d)] = e4m3::encode(bf16::decode(x[d]) / scale, p.rounding);
  }
  std::memcpy(block + slot * side.slot_stride + page.bf16_base, x + page.value_dim,
              static_cast<size_t>(2 * (page.head_dim - page.value_dim)));
}

void store_vector(const StoreKvParams& p, Side which, const uint16_t* x, int64_t slot,
                  int64_t head) {
  const SideLayout& side = p.cache.page.side(which);
  uint8_t* page = p.cache.block(slot / p.cache.page.block_size);
  const int64_t offset = slot % p.cache.page.block_size;
  if (p.cache.page.has_tiles()) return store_tiles(p, x, page, offset);
  const float scale =
      has_inline_scales(side.format)
          ? inline_scale(x, p.cache.page.head_dim)
          : static_scale(p.cache, which, which == Side::kK ? p.k_scale : p.v_scale, head);
  for (int64_t d = 0; d < p.cache.page.head_dim; ++d) {
    uint8_t* to = page + side.byte(head, offset, d);
    if (side.format == Format::kBf16) {
      std::memcpy(to, &x[d], 2);
    } else if (has_inline_scales(side.format)) {
      *to = e4m3::encode(bf16::decode(x[d]) * (1.0f / scale), p.rounding);
    } else {
      *to = e4m3::encode(bf16::decode(x[d]) / scale, p.rounding);
    }
  }
  if (has_inline_scales(side.format)) std::memcpy(page + side.scale_byte(head, offset), &scale, 4);
}

}  // namespace

void store_kv_ref(const StoreKvParams& p) {
  for (size_t t = 0; t < p.slot_mapping.size(); ++t) {
    const int64_t slot = p.slot_mapping[t];
    if (slot < 0) continue;
    for (int64_t head = 0; head < p.cache.page.num_kv_heads; ++head) {
      for (const Side side : p.cache.page.stored_sides()) {
        const TensorView& x = side == Side::kK ? p.k : p.v;
        const int64_t row = static_cast<int64_t>(t) * x.strides[0] + head * x.strides[1];
        store_vector(p, side, x.as<const uint16_t>() + row, slot, head);
      }
    }
  }
}

}  // namespace kv
