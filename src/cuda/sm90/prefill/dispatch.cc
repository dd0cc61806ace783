#include <fmt/core.h>

#include "cuda/sm90/prefill/prefill_params.h"
#include "cuda/sm90/support.h"
#include "kvscale/error.h"

namespace kv::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

void set_cache(PrefillParams& p, const CacheView& cache) {
  const SideLayout &k = cache.page.side(Side::kK), &v = cache.page.side(Side::kV);
  p.cache = cache.data;
  p.block_stride = cache.block_stride;
  p.block_size = Divisor(static_cast<uint32_t>(cache.page.block_size));
  p.slot_stride = k.slot_stride;
  p.head_stride = k.head_stride;
  p.v_base = static_cast<int>(v.base);
}

/// Inline scales are read with the last codes before them.
void check_cells(const PageLayout& page) {
  const SideLayout &k = page.side(Side::kK), &v = page.side(Side::kV);
  const int64_t d = page.head_dim;
  if (k.base == 0 && k.scale_base == d && v.base == d + 4 && v.scale_base == v.base + d &&
      (k.slot_stride | k.head_stride) % 8 == 0) {
    return;
  }
  throw UnsupportedError(
      "attend: cuda supports inline scales in cells [K | scale | V | scale] that start on 8 bytes, "
      "needed another order or other strides");
}

void set_codes(PrefillParams& p, const CacheView& cache) {
  const PageMap map = page_map(cache, static_cast<int>(cache.page.head_dim / 4));
  p.codes = map.map;
  p.pair_words = map.pair_words;
  p.head_words = map.head_words;
  p.head_step = map.head_step;
}

PrefillParams make_params(const PrefillArgs& a, Cells cells) {
  PrefillParams p{};
  set_cache(p, a.cache);
  if (cells == Cells::kInline) check_cells(a.cache.page);
  if (cells != Cells::kBf16) set_codes(p, a.cache);
  p.q = a.q;
  p.q_row_stride = a.q_row_stride;
  p.q_head_stride = a.q_head_stride;
  p.out = a.out;
  p.out_is_f32 = a.out_is_f32;
  p.out_row_stride = a.out_row_stride;
  p.out_head_stride = a.out_head_stride;
  p.block_table = a.block_table;
  p.table_stride = a.table_stride;
  p.k_scale = a.k_scale;
  p.v_scale = a.v_scale;
  p.sinks = a.sinks;
  p.tiles = a.tiles;
  p.q_per_kv = static_cast<int>(a.q_per_kv);
  p.window = a.window;
  p.soft_cap = a.soft_cap;
  p.score_scale = a.soft_cap > 0 ? a.softmax_scale : a.softmax_scale * kLog2E;
  return p;
}

template <int kHeadDim>
void launch_cells(const PrefillParams& p, Cells cells, const PrefillArgs& a, StreamHandle stream) {
  if (cells == Cells::kBf16) return launch_prefill_bf16<kHeadDim>(p, a.num_tiles, stream);
  if (cells == Cells::kStatic)
    return launch_prefill_e4m3_static<kHeadDim>(p, a.num_tiles, a.fp8_math, stream);
  launch_prefill_e4m3_per_token_head<kHeadDim>(p, a.num_tiles, stream);
}

}  // namespace

std::string prefill(const PrefillArgs& a, StreamHandle stream) {
  const AttendRequest request{
      a.cache,           a.q,        a.q_row_stride,  a.q_head_stride, a.out, a.out_row_stride,
      a.out_head_stride, a.q_per_kv, a.softmax_scale, a.fp8_math};
  const Cells cells = check_attend(request);
  const PrefillParams p = make_params(a, cells);
  const auto head_dim = static_cast<int>(a.cache.page.head_dim);
  if (a.num_tiles > 0) {
    if (head_dim == 64) launch_cells<64>(p, cells, a, stream);
    if (head_dim == 96) launch_cells<96>(p, cells, a, stream);
    if (head_dim == 128) launch_cells<128>(p, cells, a, stream);
    if (head_dim == 256) launch_cells<256>(p, cells, a, stream);
  }
  return fmt::format("prefill_cuda/sm90/{},{}/{}/d{}/g{}/math={}",
                     name(a.cache.page.side(Side::kK).format),
                     name(a.cache.page.side(Side::kV).format),
                     a.cache.page.order == PageOrder::kNhd ? "nhd" : "hnd", head_dim, a.q_per_kv,
                     a.fp8_math ? "fp8" : "bf16");
}

}  // namespace kv::cuda
