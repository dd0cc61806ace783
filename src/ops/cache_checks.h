#pragma once

#include <span>
#include <string_view>

#include "cache/kv_cache.h"

namespace kv {

/// Throws ValueError unless a side with static scales has num_kv_heads finite ones > 0.
void check_scales(std::string_view op, const CacheView& cache, Side side,
                  std::span<const float> scales);

/// Value d of a latent as it is read: a code times the static scale or that of its tile, or BF16.
float latent_value(const PageLayout& page, const uint8_t* block, int64_t slot, int64_t d,
                   float static_scale);

/// What a code of this head is multiplied by; 1 for formats without static scales.
inline float static_scale(const CacheView& cache, Side side, std::span<const float> scales,
                          int64_t head) {
  const Format format = cache.page.side(side).format;
  return format == Format::kE4m3PerTensor || format == Format::kE4m3PerHead
             ? scales[static_cast<size_t>(head)]
             : 1.0f;
}

}  // namespace kv
