#pragma once

#include <cuda_runtime.h>

#include "cuda/device.h"
#include "cuda/sm90/append/store_params.h"
#include "cuda/sm90/launch.cuh"
#include "cuda/sm90/ptx.cuh"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

namespace kv::cuda {

enum class StoreClass { kBf16, kStatic, kInline };

inline constexpr int kStoreThreads = 256;

/// What one lane holds of a vector: two chunks of 8 values in BF16, half a vector apart.
struct LaneChunks {
  uint4 chunk[2];
};

struct Eight {
  float x[8];
};

__device__ inline Eight widen(uint4 raw) {
  Eight out;
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.x[2 * i] = __uint_as_float(words[i] << 16);
    out.x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return out;
}

__device__ inline uint4 narrow(const Eight& x) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = bf16::encode(x.x[2 * i]) | uint32_t{bf16::encode(x.x[2 * i + 1])} << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

/// The partner of dimension i is i + head_dim / 2: the same place of the lane's other chunk.
__device__ inline void rotate(LaneChunks& v, const StoreParams& p, int64_t position, int lane) {
  const Eight lower = widen(v.chunk[0]), upper = widen(v.chunk[1]);
  const int64_t at = position * (p.head_dim / 2) + lane * 8;
  Eight out[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float c = p.rope.cos[at + i], s = p.rope.sin[at + i];
    // As the CPU: the second product is fused into the sum, the first is rounded.
    out[0].x[i] = __fmaf_rn(-upper.x[i], s, __fmul_rn(lower.x[i], c));
    out[1].x[i] = __fmaf_rn(lower.x[i], s, __fmul_rn(upper.x[i], c));
  }
  v.chunk[0] = narrow(out[0]);
  v.chunk[1] = narrow(out[1]);
}

/// BF16 magnitudes order like integers; 0x7f80 and above is not finite.
inline constexpr uint32_t kNotFinite = 0x7f80;

/// The largest magnitude of 8 values, as BF16 bits.
__device__ inline uint32_t top_bits(uint4 raw) {
  const uint32_t a = __vmaxu2(raw.x & 0x7fff7fffu, raw.y & 0x7fff7fffu);
  const uint32_t b = __vmaxu2(raw.z & 0x7fff7fffu, raw.w & 0x7fff7fffu);
  const uint32_t both = __vmaxu2(a, b);
  return max(both & 0xffffu, both >> 16);
}

__device__ inline uint32_t finite_top_bits(uint4 raw) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t bits = (words[i / 2] >> (16 * (i % 2))) & 0x7fffu;
    if (bits < kNotFinite) top = max(top, bits);
  }
  return top;
}

/// The largest finite magnitude of a vector that lies on `width` lanes, on all of them.
__device__ inline float finite_amax(const LaneChunks& v, int width) {
  uint32_t top = max(top_bits(v.chunk[0]), top_bits(v.chunk[1]));
  if (top >= kNotFinite) top = max(finite_top_bits(v.chunk[0]), finite_top_bits(v.chunk[1]));
  for (int step = width / 2; step > 0; step /= 2) {
    top = max(top, __shfl_xor_sync(~0u, top, step));
  }
  return __uint_as_float(top << 16);
}

__device__ inline uint32_t encode_pair(float low, float high) {
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}

struct StoreTally {
  uint32_t saturated = 0, flushed = 0, nan = 0;
};

/// x / scale, rounded as the division is, by three operations: P. Markstein, "Computation of
/// elementary functions on the IBM RISC System/6000 processor", 1990, for divisors that are not all
/// ones. Below 2^-102 it may not be; there the quotient is below 2^-42, which no code tells from 0.
struct Quotient {
  static constexpr uint32_t kTop = 0x5d80;  // 2^60 in BF16: products stay finite below it
  float scale, inverse;
  bool is_moderate;

  __device__ static Quotient by(float scale) {
    const bool has_all_ones = (__float_as_uint(scale) & 0x7fffffu) == 0x7fffffu;
    return {scale, __fdiv_rn(1.0f, scale), scale >= 0x1p-60f && scale <= 0x1p60f && !has_all_ones};
  }

  __device__ bool is_exact(uint4 raw) const { return is_moderate && top_bits(raw) < kTop; }
  __device__ float of(float x) const {
    const float q = __fmul_rn(x, inverse);
    const float better = __fmaf_rn(__fmaf_rn(-q, scale, x), inverse, q);
    return copysignf(better, x);  // a sum of zeros has lost the sign
  }
  __device__ float exact(float x) const { return __fdiv_rn(x, scale); }
};

/// x times the reciprocal of an inline scale.
struct Multiple {
  float factor;
  __device__ bool is_exact(uint4 raw) const { return top_bits(raw) < kNotFinite; }
  __device__ float of(float x) const { return __fmul_rn(x, factor); }
  __device__ float exact(float x) const { return of(x); }
};

/// What the conversion instruction does not do: truncation, NaN with its sign; and any magnitude.
template <bool kTruncate, class Scaling>
__device__ __noinline__ uint2 encode_exactly(uint4 raw, const Scaling& scaling) {
  constexpr Rounding kRounding = kTruncate ? Rounding::kTruncate : Rounding::kNearestEven;
  const Eight x = widen(raw);
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint8_t code = e4m3::encode(isnan(x.x[i]) ? x.x[i] : scaling.exact(x.x[i]), kRounding);
    words[i / 4] |= uint32_t{code} << (8 * (i % 4));
  }
  return {words[0], words[1]};
}

template <bool kTruncate, bool kCount, class Scaling>
__device__ inline uint2 encode(uint4 raw, const Scaling& scaling, StoreTally& tally) {
  const Eight x = widen(raw);
  uint2 codes;
  if (kTruncate || !scaling.is_exact(raw)) {
    codes = encode_exactly<kTruncate>(raw, scaling);
  } else {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = encode_pair(scaling.of(x.x[2 * i]), scaling.of(x.x[2 * i + 1]));
    }
    codes = {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
  }
  if constexpr (kCount) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t code = ((i < 4 ? codes.x : codes.y) >> (8 * (i % 4))) & 0x7f;
      tally.saturated += fabsf(scaling.exact(x.x[i])) > 448.0f;
      tally.flushed += code == 0 && x.x[i] != 0.0f;
      tally.nan += isnan(x.x[i]);
    }
  }
  return codes;
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
  LaneChunks v;
  uint8_t* page;  // none = nothing to store
  int side, head, slot;
  int64_t position;
};

__device__ inline int64_t block_of(int64_t slot, const Divisor& block_size) {
  if (slot >> 31 != 0) return slot / block_size.divisor;
  return block_size.quotient(static_cast<uint32_t>(slot));
}

/// Reads the values before it knows whether the token has a slot: neither read waits for the other.
__device__ inline StoreVector load_vector(const StoreParams& p, uint32_t index, int lane) {
  StoreVector v{};
  const uint32_t token = p.vectors_per_token.quotient(index);
  if (token >= p.num_tokens) return v;
  const uint32_t within = index - token * p.vectors_per_token.divisor;
  const int64_t slot = __ldg(p.slot_mapping + token);
  v.head = static_cast<int>(p.num_sides == 2 ? within / 2 : within);
  v.side = static_cast<int>(p.num_sides == 2 ? within % 2 : 0);
  const StoreSide& side = p.sides[v.side];
  const auto* from = reinterpret_cast<const uint4*>(side.x + token * side.token_stride +
                                                    v.head * side.head_stride);
  if (lane < p.half_chunks) {
    v.v.chunk[0] = __ldcs(from + lane);
    if ((lane + p.half_chunks) * 8 < p.head_dim) v.v.chunk[1] = __ldcs(from + lane + p.half_chunks);
  }
  if (p.rope.cos != nullptr) v.position = p.rope.positions[token];
  if (slot < 0) return v;  // padding of a batch
  const int64_t block = block_of(slot, p.block_size);
  v.slot = static_cast<int>(slot - block * p.block_size.divisor);
  v.page = p.cache + block * p.block_stride;
  return v;
}

template <bool kTruncate, bool kCount, class Scaling>
__device__ inline void write_codes(const StoreParams& p, uint8_t* to, const LaneChunks& v, int lane,
                                   const Scaling& scaling, StoreTally& tally) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int chunk = lane + i * p.half_chunks;
    if (chunk * 8 >= p.head_dim) continue;
    store_words(to + chunk * 8, encode<kTruncate, kCount>(v.chunk[i], scaling, tally));
  }
}

/// Inline scales: V's codes start 4 bytes past a multiple of 8, behind K's scale. A lane of V
/// writes the second word of each of its chunks with the first word of the next one, the last with
/// V's scale, and lane 0 its first word with K's: every store takes 8 bytes.
template <bool kTruncate, bool kCount>
__device__ inline void write_inline_pair(const StoreParams& p, const StoreVector& v, int lane,
                                         int width, const Multiple& multiple, float scale,
                                         StoreTally& tally) {
  const bool is_value = v.side == 1;
  const int second = lane + p.half_chunks, chunks = p.head_dim / 8;
  const bool has_first = v.page != nullptr && lane < p.half_chunks;
  const bool has_second = has_first && second < chunks;
  uint2 a = {0, 0}, b = {0, 0};
  if (has_first) a = encode<kTruncate, kCount>(v.v.chunk[0], multiple, tally);
  if (has_second) b = encode<kTruncate, kCount>(v.v.chunk[1], multiple, tally);
  const uint32_t after_a = __shfl_down_sync(~0u, a.x, 1, width);
  const uint32_t after_b = __shfl_down_sync(~0u, b.x, 1, width);
  const uint32_t middle = __shfl_sync(~0u, b.x, 0, width);
  const float key_scale = __shfl_up_sync(~0u, scale, width);
  if (!has_first) return;
  const StoreSide& side = p.sides[v.side];
  uint8_t* cell = v.page + (v.head * side.page_head_stride + v.slot * side.page_slot_stride);
  uint8_t* to = cell + side.base + (is_value ? 4 : 0);
  if (is_value) {
    if (lane == 0) {
      *reinterpret_cast<uint2*>(cell + p.sides[0].scale_base) = {__float_as_uint(key_scale), a.x};
    }
    a = {a.y, lane == p.half_chunks - 1 ? middle : after_a};
    b = {b.y, second == chunks - 1 ? __float_as_uint(scale) : after_b};
  }
  *reinterpret_cast<uint2*>(to + lane * 8) = a;
  if (has_second) *reinterpret_cast<uint2*>(to + second * 8) = b;
}

template <StoreClass kClass, bool kTruncate, bool kCount>
__device__ inline void write_vector(const StoreParams& p, StoreVector& v, int lane, int width,
                                    StoreTally& tally) {
  if (p.rope.cos != nullptr && v.side == 0 && p.first_is_k && lane < p.half_chunks) {
    rotate(v.v, p, v.position, lane);
  }
  float scale = 1;
  if constexpr (kClass == StoreClass::kInline) {
    scale = fmaxf(__fdiv_rn(finite_amax(v.v, width), 448.0f), 1e-6f);
    const Multiple multiple{__fdiv_rn(1.0f, scale)};
    if (p.has_pairs) {
      return write_inline_pair<kTruncate, kCount>(p, v, lane, width, multiple, scale, tally);
    }
  }
  if (v.page == nullptr || lane >= p.half_chunks) return;
  const StoreSide& side = p.sides[v.side];
  uint8_t* cell = v.page + (v.head * side.page_head_stride + v.slot * side.page_slot_stride);
  uint8_t* to = cell + side.base;
  if constexpr (kClass == StoreClass::kBf16) {
    store_words(to + lane * 16, v.v.chunk[0]);
    const int second = lane + p.half_chunks;
    if (second * 8 < p.head_dim) store_words(to + second * 16, v.v.chunk[1]);
  } else if constexpr (kClass == StoreClass::kStatic) {
    const auto quotient = Quotient::by(__ldg(side.scale + v.head));
    write_codes<kTruncate, kCount>(p, to, v.v, lane, quotient, tally);
  } else {
    const Multiple multiple{__fdiv_rn(1.0f, scale)};
    write_codes<kTruncate, kCount>(p, to, v.v, lane, multiple, tally);
    if (lane == 0) *reinterpret_cast<float*>(cell + side.scale_base) = scale;
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
  const uint32_t index = (blockIdx.x * kStoreThreads + threadIdx.x) >> p.lanes_log2;
  // In this order: a decode step that starts early reads what this launch does not write, and
  // everything older than this launch is there once its blocks let the step start.
  wait_for_predecessor();
  let_dependents_start();
  StoreVector v = load_vector(p, index, lane);
  StoreTally tally;
  write_vector<kClass, kTruncate, kCount>(p, v, lane, width, tally);
  if constexpr (kCount) add_tally(p.counters, tally);
}

template <StoreClass kClass, bool kTruncate, bool kCount>
void launch_store_variant(const StoreParams& p, StreamHandle stream) {
  const int64_t vectors = p.num_tokens * p.vectors_per_token.divisor;
  const int64_t per_block = kStoreThreads >> p.lanes_log2;
  const auto blocks = static_cast<int>((vectors + per_block - 1) / per_block);
  if (blocks == 0) return;
  launch_overlapping("store_kv", store_kernel<kClass, kTruncate, kCount>, blocks, kStoreThreads, 0,
                     stream, p);
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
