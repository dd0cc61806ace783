#pragma once

#include <cuda_runtime.h>

#include "cuda/device.h"
#include "cuda/sm90/append/store_params.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

namespace kv::cuda {

enum class StoreClass { kBf16, kStatic, kInline };

inline constexpr int kStoreThreads = 256;
// Vectors per thread: their loads are all in flight before the first is used.
inline constexpr int kVectorsPerThread = 4;

/// Eight neighbouring values of one vector, as the lane that holds them sees them.
struct StoreLane {
  float x[8];
};

__device__ inline StoreLane widen(uint4 raw) {
  StoreLane lane;
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    lane.x[2 * i] = __uint_as_float(words[i] << 16);
    lane.x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return lane;
}

__device__ inline uint4 narrow(const StoreLane& lane) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = bf16::encode(lane.x[2 * i]) | uint32_t{bf16::encode(lane.x[2 * i + 1])} << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

/// The partner of dimension i is i + head_dim / 2, half the vector's lanes away. All lanes of the
/// warp call this; lanes past the vector carry nothing.
__device__ inline uint4 rotate(uint4 raw, const StoreParams& p, int64_t position, int lane,
                               int width) {
  const int half_lanes = p.head_dim / 16;
  const bool lower = lane < half_lanes;
  const int partner = lower ? lane + half_lanes : lane - half_lanes;
  uint4 other;
  other.x = __shfl_sync(~0u, raw.x, partner, width);
  other.y = __shfl_sync(~0u, raw.y, partner, width);
  other.z = __shfl_sync(~0u, raw.z, partner, width);
  other.w = __shfl_sync(~0u, raw.w, partner, width);
  if (lane >= 2 * half_lanes) return raw;
  const StoreLane mine = widen(raw), theirs = widen(other);
  const int64_t at = position * (p.head_dim / 2) + (lower ? lane : partner) * 8;
  StoreLane out;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float c = p.rope.cos[at + i], s = p.rope.sin[at + i];
    // As the CPU: the second product is fused into the sum, the first is rounded.
    out.x[i] = __fmaf_rn(lower ? -theirs.x[i] : theirs.x[i], s, __fmul_rn(mine.x[i], c));
  }
  return narrow(out);
}

/// The largest finite magnitude of a vector that lies on `width` lanes, on all of them.
__device__ inline float finite_amax(uint4 raw, int width) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  uint32_t amax = 0;  // BF16 magnitudes order like integers; 0x7f80 and above is not finite
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = words[i] & 0x7fffu, high = (words[i] >> 16) & 0x7fffu;
    amax = max(amax, low < 0x7f80u ? low : 0u);
    amax = max(amax, high < 0x7f80u ? high : 0u);
  }
  for (int step = width / 2; step > 0; step /= 2) {
    amax = max(amax, __shfl_xor_sync(~0u, amax, step));
  }
  return __uint_as_float(amax << 16);
}

__device__ inline uint32_t encode_pair(float low, float high) {
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}

struct StoreTally {
  uint32_t saturated = 0, flushed = 0, nan = 0;
};

/// Codes of eight scaled values y; x are the values before scaling.
template <bool kTruncate, bool kCount>
__device__ inline uint2 encode(const StoreLane& y, const StoreLane& x, StoreTally& tally) {
  bool any_nan = false;
#pragma unroll
  for (int i = 0; i < 8; ++i) any_nan |= isnan(x.x[i]);
  uint32_t words[2];
  if (kTruncate || any_nan) {
    // The conversion instruction rounds to nearest, and arithmetic and it drop a NaN's sign.
    constexpr Rounding kRounding = kTruncate ? Rounding::kTruncate : Rounding::kNearestEven;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      words[w] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 4 * w + i;
        const uint8_t code = e4m3::encode(isnan(x.x[j]) ? x.x[j] : y.x[j], kRounding);
        words[w] |= uint32_t{code} << (8 * i);
      }
    }
  } else {
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      words[w] = encode_pair(y.x[4 * w], y.x[4 * w + 1]) |
                 encode_pair(y.x[4 * w + 2], y.x[4 * w + 3]) << 16;
    }
  }
  if constexpr (kCount) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t code = (words[i / 4] >> (8 * (i % 4))) & 0x7f;
      tally.saturated += fabsf(y.x[i]) > 448.0f;
      tally.flushed += code == 0 && x.x[i] != 0.0f;
      tally.nan += isnan(x.x[i]);
    }
  }
  return {words[0], words[1]};
}

/// Cells of inline scales start on 4 bytes only, those without on 8 or 16.
__device__ inline void store_words(uint8_t* to, uint4 words) {
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    *reinterpret_cast<uint4*>(to) = words;
    return;
  }
  auto* at = reinterpret_cast<uint32_t*>(to);
  at[0] = words.x, at[1] = words.y, at[2] = words.z, at[3] = words.w;
}

__device__ inline void store_words(uint8_t* to, uint2 words) {
  if (reinterpret_cast<uintptr_t>(to) % 8 == 0) {
    *reinterpret_cast<uint2*>(to) = words;
    return;
  }
  auto* at = reinterpret_cast<uint32_t*>(to);
  at[0] = words.x, at[1] = words.y;
}

/// One vector: what is read of it, and where it goes.
struct StoreVector {
  uint4 raw;
  uint8_t* page;  // none = nothing to store
  int side, head, slot;
  int64_t position;
};

/// A division of 64 bits costs as much as all else that is done to a vector: only when it must be.
__device__ inline int64_t block_of(int64_t slot, int block_size) {
  if (slot >> 32 != 0) return slot / block_size;
  return static_cast<uint32_t>(slot) / static_cast<uint32_t>(block_size);
}

__device__ inline StoreVector load_vector(const StoreParams& p, int64_t index, int lane) {
  StoreVector v{};
  const uint32_t per_token = static_cast<uint32_t>(p.num_heads * p.num_sides);
  const uint32_t token = static_cast<uint32_t>(index) / per_token;
  if (token >= p.num_tokens) return v;
  const uint32_t within = static_cast<uint32_t>(index) - token * per_token;
  const int64_t slot = p.slot_mapping[token];
  if (slot < 0) return v;  // padding of a batch
  v.head = static_cast<int>(p.num_sides == 2 ? within / 2 : within);
  v.side = static_cast<int>(p.num_sides == 2 ? within % 2 : 0);
  const int64_t block = block_of(slot, p.block_size);
  v.slot = static_cast<int>(slot - block * p.block_size);
  v.page = p.cache + block * p.block_stride;
  const StoreSide& side = p.sides[v.side];
  if (lane * 8 < p.head_dim) {
    v.raw = __ldcs(reinterpret_cast<const uint4*>(side.x + token * side.token_stride +
                                                  v.head * side.head_stride + lane * 8));
  }
  if (p.rope.cos != nullptr) v.position = p.rope.positions[token];
  return v;
}

template <StoreClass kClass, bool kTruncate, bool kCount>
__device__ inline void write_vector(const StoreParams& p, const StoreVector& v, int lane, int width,
                                    StoreTally& tally) {
  uint4 raw = v.raw;
  if (p.rope.cos != nullptr) {
    const uint4 rotated = rotate(raw, p, v.position, lane, width);
    if (v.side == 0 && p.first_is_k) raw = rotated;
  }
  float amax = 0;
  if constexpr (kClass == StoreClass::kInline) amax = finite_amax(raw, width);
  if (v.page == nullptr || lane * 8 >= p.head_dim) return;
  const StoreSide& side = p.sides[v.side];
  uint8_t* cell = v.page + v.head * side.page_head_stride + v.slot * side.page_slot_stride;
  uint8_t* to = cell + side.base;
  if constexpr (kClass == StoreClass::kBf16) {
    store_words(to + lane * 16, raw);
  } else {
    const StoreLane x = widen(raw);
    StoreLane y;
    if constexpr (kClass == StoreClass::kStatic) {
      const float scale = side.scale[v.head];
#pragma unroll
      for (int i = 0; i < 8; ++i) y.x[i] = __fdiv_rn(x.x[i], scale);
    } else {
      const float scale = fmaxf(__fdiv_rn(amax, 448.0f), 1e-6f);
      const float factor = __fdiv_rn(1.0f, scale);
#pragma unroll
      for (int i = 0; i < 8; ++i) y.x[i] = __fmul_rn(x.x[i], factor);
      if (lane == 0) *reinterpret_cast<float*>(cell + side.scale_base) = scale;
    }
    store_words(to + lane * 8, encode<kTruncate, kCount>(y, x, tally));
  }
}

__device__ inline void add_tally(StoreCounters* counters, const StoreTally& tally) {
  const uint32_t counts[3] = {tally.saturated, tally.flushed, tally.nan};
  unsigned long long* to[3] = {&counters->saturated, &counters->flushed, &counters->nan};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const uint32_t total = __reduce_add_sync(~0u, counts[i]);
    if (threadIdx.x % 32 == 0 && total != 0) {
      atomicAdd(to[i], static_cast<unsigned long long>(total));
    }
  }
}

/// Neighbouring lanes take neighbouring vectors in the order (token, head, side): a warp writes a
/// token's cells side by side.
template <StoreClass kClass, bool kTruncate, bool kCount>
__global__ void __launch_bounds__(kStoreThreads)
    store_kernel(const __grid_constant__ StoreParams p) {
  const int width = 1 << p.lanes_log2, lane = static_cast<int>(threadIdx.x) & (width - 1);
  const int64_t vectors_per_step = kStoreThreads >> p.lanes_log2;
  const int64_t first =
      blockIdx.x * vectors_per_step * kVectorsPerThread + (threadIdx.x >> p.lanes_log2);
  StoreVector vectors[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    vectors[i] = load_vector(p, first + i * vectors_per_step, lane);
  }
  StoreTally tally;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    write_vector<kClass, kTruncate, kCount>(p, vectors[i], lane, width, tally);
  }
  if constexpr (kCount) add_tally(p.counters, tally);
}

template <StoreClass kClass, bool kTruncate, bool kCount>
void launch_store_variant(const StoreParams& p, StreamHandle stream) {
  const int64_t vectors = p.num_tokens * p.num_heads * p.num_sides;
  const int64_t per_block = static_cast<int64_t>(kStoreThreads >> p.lanes_log2) * kVectorsPerThread;
  const auto blocks = static_cast<unsigned>((vectors + per_block - 1) / per_block);
  if (blocks == 0) return;
  store_kernel<kClass, kTruncate, kCount><<<blocks, kStoreThreads, 0, stream>>>(p);
  check_launch("store_kv");
}

template <StoreClass kClass>
void launch_store(const StoreParams& p, Rounding rounding, StreamHandle stream) {
  const bool truncate = rounding == Rounding::kTruncate, count = p.counters != nullptr;
  if (truncate && count) return launch_store_variant<kClass, true, true>(p, stream);
  if (truncate) return launch_store_variant<kClass, true, false>(p, stream);
  if (count) return launch_store_variant<kClass, false, true>(p, stream);
  return launch_store_variant<kClass, false, false>(p, stream);
}

}  // namespace kv::cuda
