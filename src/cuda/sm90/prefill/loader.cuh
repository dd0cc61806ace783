#pragma once

#include "cuda/sm90/prefill/traits.cuh"
#include "cuda/sm90/prefill/wgmma.cuh"

namespace kv::cuda {

/// 16 neighbouring values of one key and side, as they lie in the page.
template <class T>
struct RawUnit {
  uint4 w[T::kIsBf16 ? 2 : 1];
};

template <class T>
__device__ RawUnit<T> load_unit(const uint8_t* at, bool is_there) {
  RawUnit<T> u;
#pragma unroll
  for (auto& w : u.w) w = {0, 0, 0, 0};
  if (!is_there) return u;
  if constexpr (T::kIsBf16) {
    u.w[0] = __ldg(reinterpret_cast<const uint4*>(at));
    u.w[1] = __ldg(reinterpret_cast<const uint4*>(at) + 1);
  } else if constexpr (T::kStatic) {
    u.w[0] = __ldg(reinterpret_cast<const uint4*>(at));
  } else {  // inline cells leave 4-byte alignment
    const auto* words = reinterpret_cast<const uint32_t*>(at);
    u.w[0] = {__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)};
  }
  return u;
}

__device__ inline void store_chunk(uint32_t at, uint4 w) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(w.x), "r"(w.y), "r"(w.z),
               "r"(w.w)
               : "memory");
}

__device__ inline uint4 widen_half(uint32_t a, uint32_t b) {
  return {e4m3_to_f16(a), e4m3_to_f16(a >> 16), e4m3_to_f16(b), e4m3_to_f16(b >> 16)};
}

/// Writes 16 values as two chunks of a row; `unit` counts units within the row of kPadded values.
template <class T>
__device__ void store_unit(uint32_t side, int row, int unit, const RawUnit<T>& u) {
  const uint32_t column = side + unit / 4 * (T::kKeys * 128);
  uint4 half[2];
  if constexpr (T::kIsBf16) {
    half[0] = u.w[0];
    half[1] = u.w[1];
  } else {
    half[0] = widen_half(u.w[0].x, u.w[0].y);
    half[1] = widen_half(u.w[0].z, u.w[0].w);
  }
  // Units 4 and up write their halves in the other order: they share banks with units 0 to 3.
  const int first = unit / 4 & 1;
  store_chunk(column + swizzled(row, 2 * (unit % 4) + first), first ? half[1] : half[0]);
  store_chunk(column + swizzled(row, 2 * (unit % 4) + 1 - first), first ? half[0] : half[1]);
}

/// Warpgroups 0 and 1 load every other stage each: while one waits for memory, the other converts.
/// A thread takes unit (thread % units) of the keys thread / units + i * step.
template <class T>
class KeyLoader {
  static constexpr int kUnits = T::kPadded / 16;                // of a key's side
  static constexpr int kKeysPerStep = kLoaderThreads / kUnits;  // by all threads at once
  static constexpr int kSteps = T::kKeys / kKeysPerStep;
  static constexpr int kTilesPerStage = T::kKeys / 16;

 public:
  __device__ KeyLoader(const PrefillParams& p, const PrefillTile& tile, KeyRange range)
      : p_(p),
        tile_(tile),
        range_(range),
        thread_(threadIdx.x % kLoaderThreads),
        lane_(threadIdx.x % 32),
        group_(threadIdx.x / kLoaderThreads),
        unit_(thread_ % kUnits),
        key_(thread_ / kUnits) {}

  __device__ void run(uint32_t shared) {
    constexpr int kStride = kLoaderGroups * T::kKeys;
    const int begin = range_.begin + group_ * T::kKeys;
    int stage = group_;
    uint32_t parity = 1;
    int64_t pages = look_up(begin);
    for (int first = begin; first < range_.end; first += kStride) {
      const int64_t ahead = look_up(first + kStride);
      const uint32_t barriers = shared + T::kBarriersAt + 16 * stage;
      const uint32_t at = shared + T::kStagesAt + stage * 2 * T::kSideBytes;
      float scales[2] = {0, 0};
      load_scales(scales, pages, first);
      bool is_free = false;
#pragma unroll
      for (int half = 0; half < 2 * kHalves; ++half) {
        RawUnit<T> units[kSteps / kHalves];
        load_part(units, pages, first, half % kHalves, half < kHalves ? 0 : p_.v_base);
        if (!is_free) barrier_wait(barriers + 8, parity), is_free = true;
        store_part(at + (half < kHalves ? 0 : T::kSideBytes), units, half % kHalves);
      }
      store_scales(shared, stage, scales);
      async_proxy_fence();
      barrier_arrive(barriers);
      pages = ahead;
      stage += kLoaderGroups;
      if (stage >= T::kStages) stage -= T::kStages, parity ^= 1;
    }
  }

 private:
  // BF16 has twice the bytes: half a side at once keeps as many registers in flight.
  static constexpr int kHalves = T::kIsBf16 ? 2 : 1;

  /// Lane i gets where the cells of the stage's i-th 16 keys start: one run of slots, because block
  /// sizes are multiples of 16.
  __device__ int64_t look_up(int first) const {
    const int key = first + 16 * lane_;
    if (lane_ >= kTilesPerStage || key >= range_.end) return 0;
    const int column = key / p_.block_size, slot = key - column * p_.block_size;
    const int32_t block = __ldg(p_.block_table + tile_.seq * p_.table_stride + column);
    return block * p_.block_stride + slot * p_.slot_stride + tile_.kv_head * p_.head_stride;
  }

  __device__ const uint8_t* cell(int64_t pages, int key) const {
    return p_.cache + __shfl_sync(~0u, pages, key / 16) + key % 16 * p_.slot_stride;
  }

  __device__ void load_part(RawUnit<T> (&part)[kSteps / kHalves], int64_t pages, int first,
                            int half, int base) const {
    constexpr int kBytes = T::kIsBf16 ? 32 : 16;
#pragma unroll
    for (int i = 0; i < kSteps / kHalves; ++i) {
      const int key = key_ + (half * (kSteps / kHalves) + i) * kKeysPerStep;
      const uint8_t* at = cell(pages, key) + base + unit_ * kBytes;
      part[i] = load_unit<T>(at, first + key < range_.end && 16 * unit_ < T::kHeadDim);
    }
  }

  __device__ void store_part(uint32_t at, const RawUnit<T> (&part)[kSteps / kHalves],
                             int half) const {
#pragma unroll
    for (int i = 0; i < kSteps / kHalves; ++i) {
      store_unit<T>(at, key_ + (half * (kSteps / kHalves) + i) * kKeysPerStep, unit_, part[i]);
    }
  }

  __device__ void load_scales(float (&scales)[2], int64_t pages, int first) const {
    if constexpr (T::kInline) {
      const int key = thread_ % T::kKeys;
      const uint8_t* at = cell(pages, key);
      if (first + key >= range_.end) return;
      scales[0] = __ldg(reinterpret_cast<const float*>(at + p_.k_scale_base));
      scales[1] = __ldg(reinterpret_cast<const float*>(at + p_.v_scale_base));
    }
  }

  __device__ void store_scales(uint32_t shared, int stage, const float (&scales)[2]) const {
    if constexpr (T::kInline) {
      float top = scales[1];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      if (lane_ == 0) {
        asm volatile(
            "st.shared.f32 [%0], %1;" ::"r"(shared + T::kUnitsAt + 16 * stage + 4 * (thread_ / 32)),
            "f"(top)
            : "memory");
      }
      if (thread_ >= T::kKeys) return;
      const uint32_t at = shared + T::kScalesAt + (stage * 2 * T::kKeys + thread_) * 4;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(scales[0]) : "memory");
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at + T::kKeys * 4), "f"(scales[1]) : "memory");
    }
  }

  const PrefillParams& p_;
  const PrefillTile& tile_;
  const KeyRange range_;
  const int thread_, lane_, group_, unit_, key_;
};

}  // namespace kv::cuda
