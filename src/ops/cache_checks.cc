#include "ops/cache_checks.h"

#include <fmt/core.h>

#include <cmath>

#include "kvscale/error.h"

namespace kv {

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
