#include "ops/cache_checks.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

namespace kv {

float latent_value(const PageLayout& page, const uint8_t* block, int64_t slot, int64_t d,
                   float static_scale) {
  const SideLayout& side = page.side(Side::kK);
  const bool is_coded = is_fp8(side.format) && d < page.coded_values();
  const int64_t at = page.has_tiles() && !is_coded
                         ? slot * side.slot_stride + page.bf16_base + 2 * (d - page.value_dim)
                         : side.byte(0, slot, d);
  if (!is_coded) {
    uint16_t bits;
    std::memcpy(&bits, block + at, sizeof bits);
    return bf16::decode(bits);
  }
  float scale = static_scale;
  if (page.has_tiles())
    std::memcpy(&scale, block + side.scale_byte(0, slot) + d / kLatentTile * 4, sizeof scale);
  return e4m3::decode(block[at]) * scale;
}

void check_scales(std::string_view op, const CacheView& cache, Side side,
                  std::span<const float> scales) {
  const Format format = cache.page.side(side).format;
  if (!is_fp8(format) || has_inline_scales(format)) return;
  const auto heads = static_cast<size_t>(cache.page.num_kv_heads);
  if (scales.size() != heads) {
    throw ShapeError(fmt::format("{}: {}_scale: expected [{}] (num_kv_heads) for {}, found [{}]",
                                 op, name(side), heads, name(format), scales.size()));
  }
  for (size_t head = 0; head < heads; ++head) {
    if (!std::isnormal(scales[head]) || scales[head] < 0) {
      throw ValueError(fmt::format("{}: {}_scale: head {}: expected a finite scale > 0, found {}",
                                   op, name(side), head, scales[head]));
    }
  }
}

}  // namespace kv
