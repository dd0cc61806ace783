#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "cuda/sm90/decode/decode_params.h"
#include "cuda/sm90/support.h"
#include "kvscale/error.h"

namespace kv::cuda {
namespace {

constexpr int kBarrierBytes = 256;
constexpr float kLog2E = 1.4426950408889634f;

template <class T>
DeviceBuffer uploaded(const std::vector<T>& host, StreamHandle stream) {
  DeviceBuffer buffer(static_cast<int64_t>(host.size() * sizeof(T)));
  upload(buffer.data(), host.data(), buffer.bytes(), stream);
  return buffer;
}

void set_plan(DecodeParams& p, const DecodeRun& run) {
  const DecodeShape& s = run.plan().shape;
  p.items = run.items();
  p.merges = run.merges();
  p.partial_out = run.partial_out();
  p.partial_sums = run.partial_sums();
  p.num_partials = run.plan().num_partials;
  p.heads = s.heads;
  p.tiles = s.tiles;
  p.pieces_per_tile = s.pieces_per_tile;
  p.piece_bytes = s.piece_bytes;
  p.piece_step = s.piece_step;
  p.tile_bytes = s.tile_bytes;
  p.smem_head_stride = s.smem_head_stride;
  p.smem_slot_stride = s.smem_slot_stride;
  p.stages = s.stages;
}

void set_cache(DecodeParams& p, const CacheView& cache) {
  const SideLayout &k = cache.page.side(Side::kK), &v = cache.page.side(Side::kV);
  p.cache = cache.data;
  p.block_stride = cache.block_stride;
  p.block_size = static_cast<int>(cache.page.block_size);
  p.slot_stride = k.slot_stride;
  p.head_stride = k.head_stride;
  p.v_base = static_cast<int>(v.base);
  p.k_scale_base = static_cast<int>(k.scale_base);
  p.v_scale_base = static_cast<int>(v.scale_base);
  p.cell_bytes = static_cast<int>(side_bytes(k.format, cache.page.head_dim) +
                                  side_bytes(v.format, cache.page.head_dim));
}

DecodeParams make_params(const DecodeArgs& a, const DecodeRun& run) {
  DecodeParams p{};
  set_plan(p, run);
  set_cache(p, a.cache);
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
  p.q_per_kv = static_cast<int>(a.q_per_kv);
  p.window = a.window;
  p.fresh_keys = a.fresh_keys;
  p.soft_cap = a.soft_cap;
  p.score_scale = a.soft_cap > 0 ? a.softmax_scale : a.softmax_scale * kLog2E;
  return p;
}

template <int kHeadDim>
void launch_cells(const DecodeLaunch& l, Cells cells) {
  if (cells == Cells::kBf16) return launch_decode_bf16<kHeadDim>(l);
  if (cells == Cells::kStatic) return launch_decode_e4m3_static<kHeadDim>(l);
  launch_decode_e4m3_per_token_head<kHeadDim>(l);
}

void launch(const DecodeLaunch& l, Cells cells) {
  if (l.head_dim == 64) return launch_cells<64>(l, cells);
  if (l.head_dim == 96) return launch_cells<96>(l, cells);
  if (l.head_dim == 128) return launch_cells<128>(l, cells);
  launch_cells<256>(l, cells);
}

}  // namespace

DecodeRun::DecodeRun(const DecodePlan& plan, int64_t q_per_kv, int64_t head_dim,
                     StreamHandle stream)
    : plan_(plan), items_(uploaded(plan.items, stream)), merges_(uploaded(plan.merges, stream)) {
  const int64_t rows = int64_t{plan.num_partials} * plan.shape.heads * q_per_kv;
  partial_out_ = DeviceBuffer(rows * head_dim * 4);
  partial_sums_ = DeviceBuffer(rows * 8);
}

std::string decode(const DecodeArgs& a, const DecodeRun& run, StreamHandle stream) {
  const AttendRequest request{
      a.cache,           a.q,        a.q_row_stride,  a.q_head_stride, a.out, a.out_row_stride,
      a.out_head_stride, a.q_per_kv, a.softmax_scale, a.fp8_math};
  const Cells cells = check_attend(request);
  const DecodePlan& plan = run.plan();
  DecodeLaunch l{};
  l.params = make_params(a, run);
  l.blocks = plan.num_blocks;
  l.threads = 32 * (plan.shape.warps() + 1);
  l.shared_bytes = kBarrierBytes + plan.shape.stages * plan.shape.stage_bytes();
  l.num_merges = static_cast<int>(plan.merges.size());
  l.head_dim = static_cast<int>(a.cache.page.head_dim);
  l.query_tiles = a.q_per_kv > 8 ? 2 : 1;
  l.fp8_math = a.fp8_math;
  l.stream = stream;
  if (l.blocks > 0) launch(l, cells);
  if (l.num_merges > 0) launch_combine(l);
  return fmt::format(
      "decode_cuda/sm90/{},{}/{}/d{}/g{}/math={}/{}x{}x{}/{}{}",
      name(a.cache.page.side(Side::kK).format), name(a.cache.page.side(Side::kV).format),
      a.cache.page.order == PageOrder::kNhd ? "nhd" : "hnd", l.head_dim, a.q_per_kv,
      a.fp8_math ? "fp8" : "bf16", plan.shape.heads, plan.shape.tiles, plan.shape.stages, plan.name,
      a.fresh_keys < 0 ? "" : fmt::format("/fresh{}", a.fresh_keys));
}

}  // namespace kv::cuda
