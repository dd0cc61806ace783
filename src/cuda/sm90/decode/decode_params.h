#pragma once

#include <cstdint>

#include "cuda/decode.h"

namespace kv::cuda {

/// What a decode kernel sees; one struct, passed by value.
struct DecodeParams {
  const uint16_t* q;
  int64_t q_row_stride, q_head_stride;
  void* out;
  int64_t out_row_stride, out_head_stride;
  const uint8_t* cache;
  int64_t block_stride, slot_stride, head_stride, piece_step;
  const int32_t* block_table;
  int64_t table_stride;
  const float *k_scale, *v_scale, *sinks;
  const DecodeItem* items;
  const DecodeMerge* merges;
  float *partial_out, *partial_sums;
  int block_size, q_per_kv, num_partials;
  int heads, tiles, pieces_per_tile, piece_bytes, tile_bytes, smem_head_stride, smem_slot_stride,
      stages;
  int v_base, k_scale_base, v_scale_base, cell_bytes;  // within a cell; K's codes come first
  int window, fresh_keys;
  float score_scale;  // softmax_scale, times log2(e) without a soft cap
  float soft_cap;
  bool out_is_f32;
};

struct DecodeLaunch {
  DecodeParams params;
  int blocks, threads, shared_bytes, head_dim, query_tiles;
  int num_merges;
  bool fp8_math;
  StreamHandle stream;
};

template <int kHeadDim>
void launch_decode_bf16(const DecodeLaunch& launch);
template <int kHeadDim>
void launch_decode_e4m3_static(const DecodeLaunch& launch);
template <int kHeadDim>
void launch_decode_e4m3_per_token_head(const DecodeLaunch& launch);
void launch_combine(const DecodeLaunch& launch);

}  // namespace kv::cuda
