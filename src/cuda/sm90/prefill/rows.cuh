#pragma once

#include "cuda/sm90/prefill/traits.cuh"
#include "cuda/sm90/prefill/wgmma.cuh"

namespace kv::cuda {

/// 64 rows of a tile on one warpgroup. Lane (g, c) of warp w holds rows 16 w + g and + 8, and of
/// every 8 columns the columns 2c and 2c + 1.
template <class T>
class RowWorker {
  static constexpr float kOffset = T::kFp8Math ? 8.0f : 0.0f;  // P in E4M3 is offset by 2^8
  static constexpr float kLowest = -1e30f;

 public:
  __device__ RowWorker(const PrefillParams& p, const PrefillTile& tile, KeyRange range,
                       uint32_t shared, int group)
      : p_(p),
        tile_(tile),
        range_(range),
        shared_(shared),
        group_(group),
        warp_(threadIdx.x / 32 % 4),
        g_(threadIdx.x % 32 / 4),
        c_(threadIdx.x % 4) {
#pragma unroll
    for (int n = 0; n < T::kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 32; ++i) out_[n][i] = 0;
    }
    k_scale_ = T::kStatic ? __ldg(p.k_scale + tile.kv_head) : 1.0f;
    v_scale_ = T::kStatic ? __ldg(p.v_scale + tile.kv_head) : 1.0f;
  }

  __device__ void run() {
    load_queries();
    int stage = 0;
    uint32_t parity = 0;
    for (int first = range_.begin; first < range_.end; first += T::kKeys) {
      const uint32_t barriers = shared_ + T::kBarriersAt + 16 * stage;
      barrier_wait(barriers, parity);
      add_stage(stage, first);
      if (threadIdx.x % 32 == 0) barrier_arrive(barriers + 8);
      if (++stage == T::kStages) stage = 0, parity ^= 1;
    }
    store();
  }

 private:
  __device__ int row(int r) const { return 64 * group_ + 16 * warp_ + g_ + 8 * r; }

  /// A warp writes its 16 rows of Q, scaled by a power of two each for F16 or E4M3.
  __device__ void load_queries() {
    constexpr int kPerLane = T::kPadded / 32;  // 2, 4 or 8 values
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 16; ++i) {
      const int r = 64 * group_ + 16 * warp_ + i, token = r / p_.q_per_kv;
      float x[kPerLane];
      uint32_t amax = 0;
      const uint16_t* from =
          p_.q + (tile_.query_row + token) * p_.q_row_stride +
          (int64_t{tile_.kv_head} * p_.q_per_kv + r % p_.q_per_kv) * p_.q_head_stride;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const int d = lane * kPerLane + j;
        const uint32_t bits = token < tile_.num_tokens && d < T::kHeadDim ? from[d] : 0u;
        amax = max(amax, bits & 0x7fffu);
        x[j] = __uint_as_float(bits << 16);
      }
      int shift = 0;
      if constexpr (!T::kIsBf16) {
        amax = __reduce_max_sync(~0u, amax);
        const int exponent = static_cast<int>(amax >> 7) - 127;
        shift = amax == 0 ? 0 : min((T::kFp8Math ? 7 : 14) - exponent, 120);
      }
      const float up = __uint_as_float(static_cast<uint32_t>(127 + shift) << 23);
#pragma unroll
      for (int j = 0; j < kPerLane; j += 2) {
        const int d = lane * kPerLane + j;
        const uint32_t pair = T::kIsBf16    ? bf16_pair(x[j], x[j + 1])
                              : T::kFp8Math ? f16_pair_through_e4m3(x[j] * up, x[j + 1] * up)
                                            : f16_pair(x[j] * up, x[j + 1] * up);
        const uint32_t at =
            shared_ + d / 64 * (kPrefillRows * 128) + swizzled(r, d % 64 / 8) + d % 8 * 2;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(pair) : "memory");
      }
      const float down = __uint_as_float(static_cast<uint32_t>(127 - shift) << 23);
      if (i % 8 == g_ && i / 8 == 0) factor_[0] = down;
      if (i % 8 == g_ && i / 8 == 1) factor_[1] = down;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor_[r] *= p_.score_scale * k_scale_;
      position_[r] = tile_.position + row(r) / p_.q_per_kv;
      largest_[r] = kLowest;
      sum_[r] = 0;
    }
    async_proxy_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group_) : "memory");
  }

  __device__ void add_stage(int stage, int first) {
    const uint32_t keys = shared_ + T::kStagesAt + stage * 2 * T::kSideBytes;
    float s[T::kKeyColumns][32];
    multiply_keys(keys, s);
    // One factor per row can wait until the exponent, where it is fused; nothing else can.
    const bool is_plain = !T::kInline && p_.soft_cap == 0;
    if (!is_plain) scale_scores(s, stage);
    const float factor[2] = {is_plain ? factor_[0] : 1.0f, is_plain ? factor_[1] : 1.0f};
    if (first + T::kKeys > tile_.position + 1 || p_.window > 0) mask(s, first);
    follow_maximum(s, factor, stage);
    uint32_t weights[T::kKeys / 16][4];
    weigh(s, factor, stage, weights);
    multiply_values(keys + T::kSideBytes, weights);
  }

  __device__ void multiply_keys(uint32_t keys, float (&s)[T::kKeyColumns][32]) {
    products_fence();
#pragma unroll
    for (int n = 0; n < T::kKeyColumns; ++n) {
#pragma unroll
      for (int k = 0; k < T::kPadded / 16; ++k) {
        const uint32_t a =
            shared_ + k / 4 * (kPrefillRows * 128) + group_ * (64 * 128) + k % 4 * 32;
        const uint32_t b = keys + k / 4 * (T::kKeys * 128) + n * (64 * 128) + k % 4 * 32;
        product_shared<T::kIsBf16>(s[n], tile_descriptor(a), tile_descriptor(b), k > 0);
      }
    }
    products_commit();
    products_wait<0>();
  }

  __device__ float2 scale_pair(int stage, int side, int n, int j) const {
    float2 out;
    const uint32_t at =
        shared_ + T::kScalesAt + ((stage * 2 + side) * T::kKeys + 64 * n + 8 * j + 2 * c_) * 4;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(out.x), "=f"(out.y) : "r"(at));
    return out;
  }

  __device__ void scale_scores(float (&s)[T::kKeyColumns][32], int stage) const {
#pragma unroll
    for (int n = 0; n < T::kKeyColumns; ++n) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float2 scale = {1, 1};
        if constexpr (T::kInline) scale = scale_pair(stage, 0, n, j);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float x = s[n][4 * j + i] * factor_[i / 2];
          if constexpr (T::kInline) x *= i % 2 == 0 ? scale.x : scale.y;
          if (p_.soft_cap > 0) {
            const float e = exp2_fast(x * (2 * kPrefillLog2E) / p_.soft_cap);
            x = p_.soft_cap * kPrefillLog2E * (1 - __fdividef(2.0f, e + 1));
          }
          s[n][4 * j + i] = x;
        }
      }
    }
  }

  __device__ void mask(float (&s)[T::kKeyColumns][32], int first) const {
#pragma unroll
    for (int n = 0; n < T::kKeyColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int key = first + 64 * n + i / 4 * 8 + 2 * c_ + i % 2, at = position_[i / 2 % 2];
        if (key > at || (p_.window > 0 && key <= at - p_.window)) s[n][i] = -INFINITY;
      }
    }
  }

  /// Scores are s * factor; factors are positive.
  __device__ void follow_maximum(const float (&s)[T::kKeyColumns][32], const float (&factor)[2],
                                 int stage) {
    float ratio = 1;
    if constexpr (T::kInline) ratio = grow_value_unit(stage);
    float change[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < T::kKeyColumns; ++n) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          top = fmaxf(top, fmaxf(s[n][4 * j + 2 * r], s[n][4 * j + 2 * r + 1]));
        }
      }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top = fmaxf(largest_[r], top * factor[r]);
      change[r] = exp2_fast(largest_[r] - top);
      largest_[r] = top;
      sum_[r] *= change[r];
      change[r] *= ratio;
    }
    if (!__any_sync(~0u, change[0] != 1 || change[1] != 1)) return;
#pragma unroll
    for (int n = 0; n < T::kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 32; ++i) out_[n][i] *= change[i / 2 % 2];
    }
  }

  /// As in decode: the power of two above every inline scale of V so far. Returns old / new.
  __device__ float grow_value_unit(int stage) {
    float top = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float x;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(x)
                   : "r"(shared_ + T::kUnitsAt + 16 * stage + 4 * w));
      top = fmaxf(top, x);
    }
    if (!(top > value_unit_)) return 1;
    const float unit = __uint_as_float((__float_as_uint(top) & 0x7f800000u) + 0x00800000u);
    const float ratio = value_unit_ / unit;
    value_unit_ = unit;
    return ratio;
  }

  __device__ void weigh(float (&s)[T::kKeyColumns][32], const float (&factor)[2], int stage,
                        uint32_t (&weights)[T::kKeys / 16][4]) {
    const float inverse =
        T::kInline ? __uint_as_float(0x7f000000u - __float_as_uint(value_unit_)) : 1.0f;
    const float base[2] = {kOffset - largest_[0], kOffset - largest_[1]};
#pragma unroll
    for (int n = 0; n < T::kKeyColumns; ++n) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          w[i] = exp2_fast(__fmaf_rn(s[n][4 * j + i], factor[i / 2], base[i / 2]));
        }
        sum_[0] += w[0] + w[1];
        sum_[1] += w[2] + w[3];
        if constexpr (T::kInline) {
          const float2 scale = scale_pair(stage, 1, n, j);
          w[0] *= scale.x * inverse, w[1] *= scale.y * inverse;
          w[2] *= scale.x * inverse, w[3] *= scale.y * inverse;
        }
        weights[4 * n + j / 2][j % 2 * 2] = pair(w[0], w[1]);
        weights[4 * n + j / 2][j % 2 * 2 + 1] = pair(w[2], w[3]);
      }
    }
  }

  __device__ static uint32_t pair(float a, float b) {
    if constexpr (T::kIsBf16) return bf16_pair(a, b);
    return T::kFp8Math ? f16_pair_through_e4m3(a, b) : f16_pair(a, b);
  }

  __device__ void multiply_values(uint32_t values, const uint32_t (&weights)[T::kKeys / 16][4]) {
    products_fence();
#pragma unroll
    for (int k = 0; k < T::kKeys / 16; ++k) {
#pragma unroll
      for (int n = 0; n < T::kColumns; ++n) {
        product_registers<T::kIsBf16>(
            out_[n], weights[k], tile_descriptor(values + n * (T::kKeys * 128) + k * (16 * 128)));
      }
    }
    products_commit();
    products_wait<0>();
  }

  __device__ void store() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum_[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const int token = row(r) / p_.q_per_kv;
      const int64_t head = int64_t{tile_.kv_head} * p_.q_per_kv + row(r) % p_.q_per_kv;
      if (token >= tile_.num_tokens) continue;
      if (p_.sinks != nullptr) {
        total += exp2_fast(__ldg(p_.sinks + head) * kPrefillLog2E - largest_[r] + kOffset);
      }
      const float factor = v_scale_ * value_unit_ / total;
      const int64_t at = (tile_.query_row + token) * p_.out_row_stride + head * p_.out_head_stride;
#pragma unroll
      for (int n = 0; n < T::kColumns; ++n) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int d = 64 * n + 8 * j + 2 * c_;
          if (d >= T::kHeadDim) continue;
          const float a = out_[n][4 * j + 2 * r] * factor, b = out_[n][4 * j + 2 * r + 1] * factor;
          if (p_.out_is_f32) {
            *reinterpret_cast<float2*>(static_cast<float*>(p_.out) + at + d) = {a, b};
          } else {
            *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p_.out) + at + d) = bf16_pair(a, b);
          }
        }
      }
    }
  }

  const PrefillParams& p_;
  const PrefillTile& tile_;
  const KeyRange range_;
  const uint32_t shared_;
  const int group_, warp_, g_, c_;
  float k_scale_, v_scale_, factor_[2] = {1, 1}, largest_[2], sum_[2];
  float value_unit_ = T::kInline ? 0x1p-60f : 1.0f;
  int position_[2];
  float out_[T::kColumns][32];
};

}  // namespace kv::cuda
