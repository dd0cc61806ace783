#include "calibrate/amax_observer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"
#include "numeric/bulk.h"

namespace kv {

AmaxObserver::AmaxObserver(int64_t num_layers, int64_t num_kv_heads)
    : num_layers_(num_layers),
      num_kv_heads_(num_kv_heads),
      heads_(static_cast<size_t>(num_layers * 2 * num_kv_heads)),
      tokens_(static_cast<size_t>(num_layers)) {}

void AmaxObserver::on_attention(const AttentionTap& tap) {
  if (tap.layer < 0 || tap.layer >= num_layers_ || tap.num_kv_heads != num_kv_heads_) {
    throw ValueError(
        fmt::format("amax: expected layer < {} with {} KV heads, found layer {} with {}",
                    num_layers_, num_kv_heads_, tap.layer, tap.num_kv_heads));
  }
  tokens_[static_cast<size_t>(tap.layer)] += tap.num_tokens;
  wide_.resize(static_cast<size_t>(tap.head_dim));
  for (const Side side : kSides) {
    const uint16_t* x = side == Side::kK ? tap.k : tap.v;
    for (int64_t t = 0; t < tap.num_tokens; ++t) {
      for (int64_t h = 0; h < num_kv_heads_; ++h, x += tap.head_dim) {
        bf16_decode(x, wide_.data(), wide_.size());
        Head& head = heads_[index(tap.layer, side, h)];
        head.amax = std::max(head.amax, max_abs(wide_.data(), wide_.size()));
        head.non_finite += std::ranges::count_if(wide_, [](float v) { return !std::isfinite(v); });
      }
    }
  }
}

std::vector<float> AmaxObserver::amax() const {
  std::vector<float> out;
  for (const Head& head : heads_) out.push_back(head.amax);
  return out;
}

void AmaxObserver::reset() {
  std::ranges::fill(heads_, Head());
  std::ranges::fill(tokens_, 0);
}

}  // namespace kv
