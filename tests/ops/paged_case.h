#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cache/kv_cache.h"
#include "numeric/bf16.h"
#include "ops/attend.h"
#include "ops/store_kv.h"

namespace kv {

inline std::vector<uint16_t> random_bf16(std::mt19937& rng, size_t n, float sigma) {
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<uint16_t> out(n);
  for (uint16_t& x : out) x = bf16::encode(normal(rng));
  return out;
}

/// Sequences in a paged cache with shuffled blocks: what the attention tests of every device run
/// on. Pages start as 0xff (NaN in both formats), so a slot that must not be read spoils the
/// result.
struct PagedCase {
  struct Options {
    Format k = Format::kBf16, v = Format::kBf16;
    PageOrder order = PageOrder::kCpu;
    int64_t num_kv_heads = 2, q_per_kv = 3, head_dim = 64, block_size = 16;
    std::vector<int32_t> seq_lens = {33};
    std::vector<int32_t> queries = {33};  // the last so many tokens of each sequence are queries
    float k_sigma = 1, v_sigma = 1;
    unsigned seed = 1;
    int64_t latent_values = 0;  // not 0: V is the first so many values of K
  };

  explicit PagedCase(const Options& options) : o(options), rng(options.seed) {
    int64_t blocks = 3;
    for (const int32_t len : o.seq_lens) {
      blocks += (len + o.block_size - 1) / o.block_size;
      max_blocks = std::max<int64_t>(max_blocks, (len + o.block_size - 1) / o.block_size);
    }
    cache = std::make_unique<KvCache>(std::vector<LayerGeometry>{{o.num_kv_heads, o.head_dim, 0, o.latent_values}},
                                      std::vector<LayerFormat>{{o.k, o.v}}, o.block_size, blocks,
                                      o.order);
    place_blocks(blocks);
    for (int64_t head = 0; head < o.num_kv_heads; ++head) {
      const float step = o.k == Format::kE4m3PerHead ? 0.25f * static_cast<float>(head) : 0.0f;
      k_scale.push_back(o.k_sigma / 64 * (1 + step));
      v_scale.push_back(o.v_sigma / 64 * (1 + step));
    }
    fill();
  }

  void place_blocks(int64_t blocks) {
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), rng);
    table.assign(o.seq_lens.size() * static_cast<size_t>(max_blocks), -1);
    size_t next = 0;
    for (size_t s = 0; s < o.seq_lens.size(); ++s) {
      for (int64_t b = 0; b * o.block_size < o.seq_lens[s]; ++b) {
        table[s * static_cast<size_t>(max_blocks) + static_cast<size_t>(b)] = order[next++];
      }
    }
  }

  void fill() {
    std::vector<int64_t> slots;
    query_start = {0};
    for (size_t s = 0; s < o.seq_lens.size(); ++s) {
      for (int32_t t = 0; t < o.seq_lens[s]; ++t) slots.push_back(slot(s, t));
      query_start.push_back(query_start.back() + o.queries[s]);
    }
    const size_t vector = static_cast<size_t>(o.num_kv_heads * o.head_dim);
    k = random_bf16(rng, slots.size() * vector, o.k_sigma);
    v = random_bf16(rng, slots.size() * vector, o.v_sigma);
    q = random_bf16(
        rng, static_cast<size_t>(query_start.back()) * vector * static_cast<size_t>(o.q_per_kv),
        1.0f);
    StoreKvParams p;
    p.k = TensorView::contiguous(k.data(), DType::kBF16,
                                 {static_cast<int64_t>(slots.size()), o.num_kv_heads, o.head_dim});
    p.v = p.k;
    p.v.data = v.data();
    p.slot_mapping = slots;
    p.cache = cache->layer(0);
    p.k_scale = k_scale;
    p.v_scale = v_scale;
    store_kv(p, Device::kCpu);
  }

  int64_t slot(size_t s, int32_t t) const {
    const size_t column = static_cast<size_t>(t / o.block_size);
    return table[s * static_cast<size_t>(max_blocks) + column] * o.block_size + t % o.block_size;
  }

  AttendParams params(std::vector<float>& out) const {
    AttendParams p;
    const int64_t value_dim = cache->layer(0).page.value_dim;
    out.assign(q.size() / static_cast<size_t>(o.head_dim) * static_cast<size_t>(value_dim), -1.0f);
    p.q = TensorView::contiguous(q.data(), DType::kBF16,
                                 {query_start.back(), o.num_kv_heads * o.q_per_kv, o.head_dim});
    p.out = TensorView::contiguous(out.data(), DType::kF32,
                                   {query_start.back(), o.num_kv_heads * o.q_per_kv, value_dim});
    p.cache = cache->layer(0);
    p.block_table = TensorView::contiguous(table.data(), DType::kI32,
                                           {static_cast<int64_t>(o.seq_lens.size()), max_blocks});
    p.seq_lens = o.seq_lens;
    p.query_start = query_start;
    p.k_scale = k_scale;
    p.v_scale = v_scale;
    p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(o.head_dim));
    return p;
  }

  Options o;
  std::mt19937 rng;
  int64_t max_blocks = 1;
  std::unique_ptr<KvCache> cache;
  std::vector<int32_t> table;
  std::vector<int32_t> query_start;
  std::vector<float> k_scale, v_scale;
  std::vector<uint16_t> q, k, v;
};

}  // namespace kv
