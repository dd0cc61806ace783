#pragma once

#include "cuda/prefill.h"
#include "cuda/sm90/divisor.h"
#include "cuda/sm90/tensor_map.h"

namespace kv::cuda {

/// What a prefill kernel sees; one struct, passed by value.
struct PrefillParams {
  TensorMap codes;            // of a cache of codes: rows of head_dim codes, 16 slots
  int pair_words = 0;         // not 0: 8 slot pairs, whose second slot lies this many words further
  int head_words, head_step;  // from KV head to KV head in the map's first and third coordinate
  const uint16_t* q;
  int64_t q_row_stride, q_head_stride;
  void* out;
  int64_t out_row_stride, out_head_stride;
  const uint8_t* cache;
  int64_t block_stride, slot_stride, head_stride;
  const int32_t* block_table;
  int64_t table_stride;
  const float *k_scale, *v_scale, *sinks;
  const PrefillTile* tiles;
  Divisor block_size;
  int q_per_kv;
  int v_base;  // within a cell; K's codes come first
  int window;
  float score_scale, soft_cap;
  bool out_is_f32;
};

template <int kHeadDim>
void launch_prefill_bf16(const PrefillParams& params, int tiles, StreamHandle stream);
template <int kHeadDim>
void launch_prefill_e4m3_static(const PrefillParams& params, int tiles, bool fp8_math,
                                StreamHandle stream);
template <int kHeadDim>
void launch_prefill_e4m3_per_token_head(const PrefillParams& params, int tiles,
                                        StreamHandle stream);

}  // namespace kv::cuda
