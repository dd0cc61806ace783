#pragma once

#include <cstdint>
#include <span>

#include "cache/kv_cache.h"
#include "numeric/rounding.h"
#include "ops/kernel.h"
#include "tensor/view.h"

namespace kv {

/// What the writes of one call lost. Counted over K and V values.
struct StoreCounts {
  int64_t values = 0;
  int64_t saturated = 0;  // |x / scale| > 448, infinities included
  int64_t flushed = 0;    // x != 0 stored as 0
  int64_t nan = 0;
};

struct StoreKvParams {
  TensorView k, v;
  std::span<const int64_t> slot_mapping;
  CacheView cache;
  std::span<const float> k_scale, v_scale;
  Rounding rounding = Rounding::kNearestEven;
  StoreCounts* counts = nullptr;  // added to, when given
};

/// Stores new keys and values into the pages of one layer, in the format of each side.
///
/// k, v          [num_tokens, num_kv_heads, head_dim] bf16, last dimension contiguous
/// slot_mapping  [num_tokens]: block * block_size + offset; -1 = skip. Slots not named are left
/// untouched cache         pages of num_kv_heads heads; formats may differ between K and V k_scale
/// [num_kv_heads] fp32 > 0 for a format with static scales (a per-tensor scale repeated), else not
/// read
///
/// bf16                  copied
/// e4m3_per_tensor/head  code = e4m3(x / scale), IEEE division
/// e4m3_per_token_head   scale = max(amax / 448, 1e-6), code = e4m3(x * (1 / scale)), amax over the
/// finite values of the
///                       vector; the scale is stored beside the codes as F32 (vLLM's per-token-head
///                       cache)
///
/// e4m3_per_token_tile   of a latent: scale = max(amax / 448, smallest normal F32) per 128 values,
///                       code = e4m3(x / scale); the rest is copied as BF16 (vLLM's fp8_ds_mla)
///
/// Of latents k is the whole vector, and v is not read.
///
/// `rounding` to nearest even or towards zero; finite values and infinities saturate to +-448, NaN
/// stays NaN (OCP OFP8 1.0). Moves num_tokens * num_kv_heads * head_dim * (2 + stored bytes) * 2
/// sides. On CUDA k, v and the pages are device memory, everything else is host memory, and the
/// call returns when all is written (cuda/store_kv.h has the launch alone). Throws ShapeError,
/// ValueError (a slot outside the cache, a scale that is none), UnsupportedError (a device without
/// a twin).
KernelUsed store_kv(const StoreKvParams& params, Device device);

/// The same in double, one value after another, written to be read.
void store_kv_ref(const StoreKvParams& params);

}  // namespace kv
