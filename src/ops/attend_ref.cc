#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "ops/attend.h"
#include "ops/cache_checks.h"

namespace kv {
namespace {

/// One stored value times what it is to be multiplied by.
double stored_value(const AttendParams& p, Side which, const uint8_t* page, int64_t head,
                    int64_t slot, int64_t d) {
  if (p.cache.page.holds_latents) {
    return latent_value(p.cache.page, page, slot, d,
                        static_scale(p.cache, Side::kK, p.k_scale, head));
  }
  const SideLayout& side = p.cache.page.side(which);
  const uint8_t* at = page + side.byte(head, slot, d);
  if (side.format == Format::kBf16) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return bf16::decode(bits);
  }
  float scale = static_scale(p.cache, which, which == Side::kK ? p.k_scale : p.v_scale, head);
  if (has_inline_scales(side.format)) std::memcpy(&scale, page + side.scale_byte(head, slot), 4);
  return static_cast<double>(e4m3::decode(*at)) * scale;
}

const uint8_t* page_of(const AttendParams& p, int64_t seq, int64_t position) {
  const int64_t column = position / p.cache.page.block_size;
  return p.cache.block(p.block_table.as<const int32_t>()[seq * p.block_table.strides[0] + column]);
}

double score(const AttendParams& p, int64_t seq, int64_t kv_head, const uint16_t* q,
             int64_t position) {
  double dot = 0;
  for (int64_t d = 0; d < p.cache.page.head_dim; ++d) {
    dot += static_cast<double>(bf16::decode(q[d])) *
           stored_value(p, Side::kK, page_of(p, seq, position), kv_head,
                        position % p.cache.page.block_size, d);
  }
  dot *= p.softmax_scale;
  return p.soft_cap > 0 ? p.soft_cap * std::tanh(dot / p.soft_cap) : dot;
}

void attend_one(const AttendParams& p, int64_t seq, int64_t head, int64_t kv_head,
                const uint16_t* q, int64_t position, float* out) {
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, position - p.window + 1) : 0;
  std::vector<double> weight;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t s = first; s <= position; ++s) {
    weight.push_back(score(p, seq, kv_head, q, s));
    largest = std::max(largest, weight.back());
  }
  if (!p.sinks.empty()) {
    const double sink = p.sinks[static_cast<size_t>(head)];
    largest = std::max(largest, sink);
    sum = std::exp(sink - largest);
  }
  for (double& w : weight) sum += w = std::exp(w - largest);
  for (int64_t d = 0; d < p.cache.page.value_dim; ++d) {
    double value = 0;
    for (int64_t s = first; s <= position; ++s) {
      value +=
          weight[static_cast<size_t>(s - first)] / sum *
          stored_value(p, Side::kV, page_of(p, seq, s), kv_head, s % p.cache.page.block_size, d);
    }
    out[d] = static_cast<float>(value);
  }
}

}  // namespace

void attend_ref(const AttendParams& p) {
  const int64_t q_per_kv = p.q.sizes[1] / p.cache.page.num_kv_heads;
  for (size_t seq = 0; seq < p.seq_lens.size(); ++seq) {
    const int64_t begin = p.query_start[seq], end = p.query_start[seq + 1];
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < p.q.sizes[1]; ++head) {
        attend_one(p, static_cast<int64_t>(seq), head, head / q_per_kv,
                   p.q.as<const uint16_t>() + row * p.q.strides[0] + head * p.q.strides[1],
                   p.seq_lens[seq] - (end - row),
                   p.out.as<float>() + row * p.out.strides[0] + head * p.out.strides[1]);
      }
    }
  }
}

}  // namespace kv
