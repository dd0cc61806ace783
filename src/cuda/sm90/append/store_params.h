#pragma once

#include <cstdint>

#include "cuda/sm90/divisor.h"
#include "cuda/store_kv.h"

namespace kv::cuda {

/// Where one side's bytes go; strides of the cache in bytes, of the input in elements.
struct StoreSide {
  const uint16_t* x;
  int64_t token_stride, head_stride;
  int base, page_head_stride, page_slot_stride, scale_base;  // within a page
  const float* scale;
};

/// What one launch of a store kernel sees. `sides` holds K, V or both, in that order.
struct StoreParams {
  StoreSide sides[2];
  int num_sides;
  bool first_is_k;
  bool has_pairs;  // K, its scale, V, its scale side by side in cells that start on 8 bytes
  const int64_t* slot_mapping;
  int64_t num_tokens;
  uint8_t* cache;
  int64_t block_stride;
  int head_dim, half_chunks;  // a lane takes the 8 values of chunk `lane` and of lane + half_chunks
  int lanes_log2;             // lanes that share a vector: the power of two at or above half_chunks
  Divisor vectors_per_token, block_size;
  StoreRope rope;
  StoreCounters* counters;
};

void launch_store_bf16(const StoreParams& params, Rounding rounding, StreamHandle stream);
void launch_store_e4m3_static(const StoreParams& params, Rounding rounding, StreamHandle stream);
void launch_store_e4m3_per_token_head(const StoreParams& params, Rounding rounding,
                                      StreamHandle stream);

}  // namespace kv::cuda
