#pragma once

#include <bit>
#include <cstdint>

#include "cuda/store_kv.h"

#ifdef __CUDACC__
#define KV_DEVICE __device__
#else
#define KV_DEVICE
#endif

namespace kv::cuda {

/// n / divisor for n below 2^31 by a product: a division costs a store kernel as much as a vector.
struct Divisor {
  uint32_t divisor = 1, magic = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t d)
      : divisor(d),
        magic(static_cast<uint32_t>(
            ((uint64_t{1} << 32) * ((uint64_t{1} << std::bit_width(d - 1)) - d)) / d + 1)),
        shift(static_cast<uint32_t>(std::bit_width(d - 1))) {}

  KV_DEVICE uint32_t quotient(uint32_t n) const {
    return (static_cast<uint32_t>((uint64_t{n} * magic) >> 32) + n) >> shift;
  }
};

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
