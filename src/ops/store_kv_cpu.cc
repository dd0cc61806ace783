#include "ops/store_kv_cpu.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "numeric/bulk.h"
#include "numeric/simd.h"
#include "ops/cache_checks.h"

namespace kv {
namespace {

/// One vector [head_dim] of one token and head, on its way into the page.
class VectorWriter {
 public:
  VectorWriter(const StoreKvParams& params, Side side)
      : params_(params),
        side_(params.cache.page.side(side)),
        which_(side),
        scales_(side == Side::kK ? params.k_scale : params.v_scale),
        wide_(static_cast<size_t>(params.cache.page.head_dim)),
        codes_(wide_.size()) {}

  void write(const uint16_t* x, int64_t slot, int64_t head, StoreCounts& counts) {
    const int64_t block_size = params_.cache.page.block_size;
    uint8_t* page = params_.cache.block(slot / block_size);
    const int64_t offset = slot % block_size;
    uint8_t* to = page + side_.byte(head, offset, 0);
    counts.values += static_cast<int64_t>(wide_.size());
    if (!is_fp8(side_.format)) {
      scatter(reinterpret_cast<const uint8_t*>(x), to, 2);
      return;
    }
    bf16_decode(x, wide_.data(), wide_.size());
    if (params_.cache.page.has_tiles()) {
      write_tiles(x, page, offset, counts);
      return;
    }
    add(counts, encode(page + side_.scale_byte(head, offset), head));
    scatter(codes_.data(), to, 1);
  }

 private:
  EncodeCounts encode(uint8_t* inline_scale, int64_t head) {
    if (!has_inline_scales(side_.format)) {
      const float scale = static_scale(params_.cache, which_, scales_, head);
      return e4m3_encode(wide_.data(), codes_.data(), wide_.size(), scale, params_.rounding);
    }
    const float scale = std::max(max_abs(wide_.data(), wide_.size()) / 448.0f, 1e-6f);
    std::memcpy(inline_scale, &scale, sizeof scale);
    return e4m3_encode_multiplied(wide_.data(), codes_.data(), wide_.size(), 1.0f / scale,
                                  params_.rounding);
  }

  /// A latent by tiles of 128 values under a scale each, and what comes after it as it is.
  void write_tiles(const uint16_t* x, uint8_t* block, int64_t slot, StoreCounts& counts) {
    const PageLayout& page = params_.cache.page;
    for (int64_t first = 0; first < page.value_dim; first += kLatentTile) {
      const float* from = wide_.data() + first;
      const float scale =
          std::max(max_abs(from, kLatentTile) / 448.0f, std::numeric_limits<float>::min());
      std::memcpy(block + side_.scale_byte(0, slot) + first / kLatentTile * 4, &scale,
                  sizeof scale);
      add(counts, e4m3_encode(from, block + side_.byte(0, slot, first), kLatentTile, scale,
                              params_.rounding));
    }
    std::memcpy(block + slot * side_.slot_stride + page.bf16_base, x + page.value_dim,
                static_cast<size_t>(2 * (page.head_dim - page.value_dim)));
  }

  void scatter(const uint8_t* from, uint8_t* to, int64_t value_size) const {
    const auto n = static_cast<int64_t>(wide_.size());
    if (side_.dim_stride == value_size) {
      std::memcpy(to, from, static_cast<size_t>(n * value_size));
      return;
    }
    for (int64_t d = 0; d < n; ++d) {
      std::memcpy(to + d * side_.dim_stride, from + d * value_size,
                  static_cast<size_t>(value_size));
    }
  }

  static void add(StoreCounts& counts, const EncodeCounts& more) {
    counts.saturated += more.saturated;
    counts.flushed += more.flushed;
    counts.nan += more.nan;
  }

  const StoreKvParams& params_;
  const SideLayout& side_;
  Side which_;
  std::span<const float> scales_;
  std::vector<float> wide_;
  std::vector<uint8_t> codes_;
};

}  // namespace

KernelUsed store_kv_cpu(const StoreKvParams& p) {
  const auto tokens = static_cast<int64_t>(p.slot_mapping.size());
  StoreCounts total;
  // Threads by head: two heads never share a byte, two tokens of one head may share a cache line.
#pragma omp parallel for schedule(static) if (tokens >= 16)
  for (int64_t head = 0; head < p.cache.page.num_kv_heads; ++head) {
    StoreCounts counts;
    for (const Side side : p.cache.page.stored_sides()) {
      const TensorView& x = side == Side::kK ? p.k : p.v;
      VectorWriter writer(p, side);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t slot = p.slot_mapping[static_cast<size_t>(t)];
        if (slot < 0) continue;  // padding of a batch
        writer.write(x.as<const uint16_t>() + t * x.strides[0] + head * x.strides[1], slot, head,
                     counts);
      }
    }
#pragma omp critical
    {
      total.values += counts.values;
      total.saturated += counts.saturated;
      total.flushed += counts.flushed;
      total.nan += counts.nan;
    }
  }
  if (p.counts != nullptr) {
    p.counts->values += total.values;
    p.counts->saturated += total.saturated;
    p.counts->flushed += total.flushed;
    p.counts->nan += total.nan;
  }
  return {fmt::format("store_kv_cpu/{}/{},{}", active_simd_target(),
                      name(p.cache.page.side(Side::kK).format),
                      name(p.cache.page.side(Side::kV).format))};
}

}  // namespace kv
