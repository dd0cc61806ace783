#pragma once

#include <cstdint>
#include <string>

#include "cache/kv_cache.h"
#include "cuda/device.h"
#include "numeric/rounding.h"

namespace kv::cuda {

/// Counters of one store, in device memory; added to.
struct StoreCounters {
  unsigned long long saturated, flushed, nan;
};

/// Rotation of K before it is stored: pairs half-split, (i, i + head_dim / 2).
struct StoreRope {
  const float* cos = nullptr;  // [max_positions, head_dim / 2]; none = K is stored as it comes
  const float* sin = nullptr;
  const int32_t* positions = nullptr;  // [num_tokens]
};

/// Device pointers and strides (in elements) of one store; cache.data is device memory too.
struct StoreKvArgs {
  const uint16_t *k = nullptr, *v = nullptr;  // bf16
  int64_t k_token_stride = 0, k_head_stride = 0, v_token_stride = 0, v_head_stride = 0;
  const int64_t* slot_mapping = nullptr;  // [num_tokens], -1 = skip; not checked on the device
  int64_t num_tokens = 0;
  CacheView cache;
  const float *k_scale = nullptr, *v_scale = nullptr;  // [num_kv_heads], for static scales
  Rounding rounding = Rounding::kNearestEven;
  StoreRope rope;
  StoreCounters* counters = nullptr;  // none = not counted
};

/// Launches the write; the bytes are those of the CPU twin. K and V of one class of formats (bf16,
/// static scales, inline scales) go in one launch, else in two. Returns the name of what runs.
/// Throws UnsupportedError: head_dim a multiple of 8 up to 256, NHD or HND pages, rows of k and v
/// that start on 16 bytes.
std::string store_kv(const StoreKvArgs& args, StreamHandle stream);

}  // namespace kv::cuda
