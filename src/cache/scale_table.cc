#include "cache/scale_table.h"

#include <fmt/core.h>

#include <cmath>

#include "kvscale/error.h"

namespace kv {

ScaleTable::ScaleTable(int64_t num_layers, int64_t num_kv_heads, std::string source)
    : num_layers_(num_layers), num_kv_heads_(num_kv_heads), source_(std::move(source)) {
  if (num_layers <= 0 || num_kv_heads <= 0) {
    throw ValueError(fmt::format("scale table: expected layers and KV heads > 0, found {} and {}",
                                 num_layers, num_kv_heads));
  }
  values_.assign(static_cast<size_t>(num_layers * 2 * num_kv_heads), 1.0f);
}

int64_t ScaleTable::index(int64_t layer, Side side, int64_t head) const {
  if (layer < 0 || layer >= num_layers_ || head < 0 || head >= num_kv_heads_) {
    throw ValueError(
        fmt::format("scale table ({}): expected layer < {} and head < {}, found layer {} head {}",
                    source_, num_layers_, num_kv_heads_, layer, head));
  }
  return (layer * 2 + static_cast<int64_t>(side)) * num_kv_heads_ + head;
}

std::span<const float> ScaleTable::heads(int64_t layer, Side side) const {
  return {values_.data() + index(layer, side, 0), static_cast<size_t>(num_kv_heads_)};
}

void ScaleTable::set(int64_t layer, Side side, int64_t head, float scale) {
  if (!std::isnormal(scale) || scale < 0) {
    throw ValueError(fmt::format(
        "scale table ({}): layer {} side {} head {}: expected a finite scale > 0, found {}",
        source_, layer, name(side), head, scale));
  }
  values_[static_cast<size_t>(index(layer, side, head))] = scale;
}

void ScaleTable::set_all_heads(int64_t layer, Side side, float scale) {
  for (int64_t head = 0; head < num_kv_heads_; ++head) set(layer, side, head, scale);
}

}  // namespace kv
