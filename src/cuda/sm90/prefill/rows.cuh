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
  // As in decode: weights may reach 2^8 before the result is rescaled; not those in E4M3, whose
  // range the offset uses up. With a BF16 cache neither this nor finish_sums() made it faster.
  static constexpr bool kIsEager = !T::kIsBf16;
  static constexpr float kSlack = kIsEager && !T::kFp8Math ? 8.0f : 0.0f;

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
    k_scale_ = T::kStatic ? __ldg(p.k_scale + tile.kv_head) : 1.0f;
    v_scale_ = T::kStatic ? __ldg(p.v_scale + tile.kv_head) : 1.0f;
  }

  /// The products of the next scores run beside those of these values, and the softmax of the next
  /// scores beside the latter.
  __device__ void run() {
    load_queries();
    clear();
    if constexpr (T::kE4m3) return run_e4m3();
    Scores s;
    uint32_t weights[T::kKeys / 16][4];
    PrefillCursor k, v;
    start_scores(k, s);
    products_wait<0>();
    soften(s, k, range_.begin);
    rescale_and_pack(s, weights);
    if (group_ == 1) let_other_go();
    for (int first = range_.begin + T::kKeys; first < range_.end; first += T::kKeys) {
      wait_for_turn();
      start_scores(k, s);
      start_values(v, weights);
      let_other_go();
      products_wait<1>();
      soften(s, k, first);
      if constexpr (kIsEager) finish_sums();
      products_wait<0>();
      release(Side::kV, v);
      rescale_and_pack(s, weights);
    }
    start_values(v, weights);
    products_wait<0>();
    store();
  }

 private:
  using Scores = float[T::kKeys / 2];

  /// Sums within a product of codes keep some 14 bits of the largest term, so a stage's product is
  /// added to the result in F32, not within the tensor core: else the error would grow with the
  /// length. No registers are left for a product beside the softmax of the next; the two
  /// warpgroups' softmax and products run beside each other.
  __device__ void run_e4m3() {
    Scores s;
    uint32_t weights[T::kKeys / 32][4];
    PrefillCursor k, v;
    for (int first = range_.begin; first < range_.end; first += T::kKeys) {
      start_scores(k, s);
      products_wait<0>();
      soften(s, k, first);
      pack_codes(s, weights);
      add_values(v, weights);
    }
    store();
  }

  __device__ void pack_codes(const Scores& s, uint32_t (&weights)[T::kKeys / 32][4]) const {
#pragma unroll
    for (int i = 0; i < T::kKeys / 8; ++i) {
      // Word i holds row g + 8 (i % 2) of 16 keys' columns 2c, 2c + 1, 2c + 8 and 2c + 9.
      const int at = 8 * (i / 2) + 2 * (i % 2);
      weights[i / 4][i % 4] = e4m3_quad(s[at], s[at + 1], s[at + 4], s[at + 5]);
    }
  }

  __device__ void add_values(PrefillCursor& v, const uint32_t (&weights)[T::kKeys / 32][4]) {
    barrier_wait(T::full(shared_, Side::kV, v.stage), v.parity);
    const uint32_t values = T::tile(shared_, Side::kV, v.stage);
    float sums[T::kOutColumns / 2];
    products_fence();
#pragma unroll
    for (int step = 0; step < T::kKeys / 32; ++step) {
      e4m3_product_registers(sums, weights[step], tile_descriptor(values + 32 * step), step > 0);
    }
    products_commit();
    products_wait<0>();
    release(Side::kV, v);
#pragma unroll
    for (int i = 0; i < T::kOutColumns / 2; ++i) {
      out_[0][i] = __fmaf_rn(out_[0][i], change_[i / 2 % 2], sums[i]);
    }
  }

  /// The sums are complete, so the weights are, when what follows is issued. Both compilers would
  /// else move the whole softmax, which has nothing to wait for, behind the wait it is to fill.
  __device__ void finish_sums() const {
    asm volatile("{ .reg .pred p; setp.nan.f32 p, %0, %1; @p nanosleep.u32 0; }" ::"f"(sum_[0]),
                 "f"(sum_[1])
                 : "memory");
  }

  __device__ int row(int r) const { return 64 * group_ + 16 * warp_ + g_ + 8 * r; }

  /// The two warpgroups start products in turn, so that one's softmax runs beside the other's
  /// products. Both take the same number of turns.
  __device__ void wait_for_turn() const {
    asm volatile("bar.sync %0, 256;" ::"r"(3 + group_) : "memory");
  }
  __device__ void let_other_go() const {
    asm volatile("bar.arrive %0, 256;" ::"r"(4 - group_) : "memory");
  }

  __device__ void release(Side side, PrefillCursor& at) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(T::empty(shared_, side, at.stage));
    at.advance(T::kStages);
  }

  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < T::kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < T::kOutColumns / 2; ++i) out_[n][i] = 0;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) largest_[r] = kLowest, sum_[r] = 0;
  }

  /// A warp writes its 16 rows of Q, scaled by a power of two each for F16 or E4M3. All of it is
  /// read before any of it is used: a short prompt waits for little else.
  __device__ void load_queries() {
    constexpr int kPerLane = T::kPadded / 32;  // 2, 4 or 8 values
    const int d = threadIdx.x % 32 * kPerLane;
    uint32_t words[16][kPerLane / 2];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int r = 64 * group_ + 16 * warp_ + i, token = r / p_.q_per_kv;
      const uint16_t* from =
          p_.q + (tile_.query_row + token) * p_.q_row_stride +
          (int64_t{tile_.kv_head} * p_.q_per_kv + r % p_.q_per_kv) * p_.q_head_stride + d;
      const bool is_there = token < tile_.num_tokens && d < T::kHeadDim;
#pragma unroll
      for (int j = 0; j < kPerLane / 2; ++j) {
        words[i][j] = is_there ? __ldg(reinterpret_cast<const uint32_t*>(from) + j) : 0u;
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int shift = write_query(64 * group_ + 16 * warp_ + i, d, words[i]);
      const float down = __uint_as_float(static_cast<uint32_t>(127 - shift) << 23);
      if (i % 8 == g_) factor_[i / 8] = down;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor_[r] *= p_.score_scale * k_scale_;
      position_[r] = tile_.position + row(r) / p_.q_per_kv;
      exponent_factor_[r] = p_.soft_cap > 0 ? 1.0f : factor_[r];
      // Else the compiler takes the two cases apart and multiplies and adds in two steps.
      asm volatile("" : "+f"(exponent_factor_[r]));
    }
    async_proxy_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group_) : "memory");
  }

  /// Dimensions d and up of a row into shared memory; returns the power of two they were scaled by.
  template <int kWords>
  __device__ int write_query(int r, int d, const uint32_t (&words)[kWords]) const {
    int shift = 0;
    if constexpr (!T::kIsBf16) {
      uint32_t amax = 0;
#pragma unroll
      for (const uint32_t w : words) amax = max(amax, max(w & 0x7fffu, (w >> 16) & 0x7fffu));
      amax = __reduce_max_sync(~0u, amax);
      const int exponent = static_cast<int>(amax >> 7) - 127;
      shift = amax == 0 ? 0 : min((T::kFp8Math ? 7 : 14) - exponent, 120);
    }
    const float up = __uint_as_float(static_cast<uint32_t>(127 + shift) << 23);
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      const float low = __uint_as_float(words[j] << 16) * up;
      const float high = __uint_as_float(words[j] & 0xffff0000u) * up;
      const int at = d + 2 * j;
      if constexpr (T::kE4m3) {
        asm volatile(
            "st.shared.u16 [%0], %1;" ::"r"(shared_ + swizzled<T::kRowBytes>(r, at / 16) + at % 16),
            "h"(e4m3_pair(low, high))
            : "memory");
        continue;
      }
      const uint32_t pair = T::kIsBf16    ? words[j]
                            : T::kFp8Math ? f16_pair_through_e4m3(low, high)
                                          : f16_pair(low, high);
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared_ + at / 64 * (kPrefillRows * 128) +
                                                   swizzled(r, at % 64 / 8) + at % 8 * 2),
                   "r"(pair)
                   : "memory");
    }
    return shift;
  }

  __device__ void start_scores(const PrefillCursor& k, Scores& s) const {
    barrier_wait(T::full(shared_, Side::kK, k.stage), k.parity);
    const uint32_t keys = T::tile(shared_, Side::kK, k.stage);
    products_fence();
#pragma unroll
    for (int step = 0; step < T::kPadded * T::kValueBytes / 32; ++step) {
      const uint32_t a =
          shared_ + step / 4 * (kPrefillRows * 128) + group_ * (64 * T::kRowBytes) + step % 4 * 32;
      const uint32_t b = keys + step / 4 * (T::kKeys * 128) + step % 4 * 32;
      const uint64_t qs = tile_descriptor<T::kRowBytes>(a), ks = tile_descriptor<T::kRowBytes>(b);
      if constexpr (T::kE4m3) {
        e4m3_product_shared(s, qs, ks, step > 0);
      } else {
        product_shared<T::kIsBf16>(s, qs, ks, step > 0);
      }
    }
    products_commit();
  }

  __device__ void start_values(const PrefillCursor& v,
                               const uint32_t (&weights)[T::kKeys / 16][4]) {
    barrier_wait(T::full(shared_, Side::kV, v.stage), v.parity);
    const uint32_t values = T::tile(shared_, Side::kV, v.stage);
    constexpr uint32_t kNextColumns = T::kKeys * 128;
    products_fence();
#pragma unroll
    for (int k = 0; k < T::kKeys / 16; ++k) {
#pragma unroll
      for (int n = 0; n < T::kOutTiles; ++n) {
        const uint32_t b = values + n * (T::kOutColumns / 64) * kNextColumns + k * (16 * 128);
        product_registers<T::kIsBf16>(out_[n], weights[k], tile_descriptor(b, kNextColumns));
      }
    }
    products_commit();
  }

  /// Scores of the keys first, first + 1, ... to weights, in place; `k` is these keys' stage. The
  /// result so far has to be multiplied by change_.
  __device__ void soften(Scores& s, PrefillCursor& k, int first) {
    // One factor per row can wait until the exponent, where it is fused, unless scores are capped.
    const bool is_capped = p_.soft_cap > 0;
    release(Side::kK, k);
    const float ratio = follow_units();
    if (is_capped) [[unlikely]]
      cap_scores(s);
    if (first + T::kKeys > tile_.position + 1 || p_.window > 0) [[unlikely]]
      mask(s, first);
    follow_maximum(s, ratio);
    weigh(s);
  }

  /// This stage's keys are relative to a power of two, its values to one that may have grown, by
  /// which the result has to shrink: returns old / new.
  __device__ float follow_units() {
    if constexpr (!T::kInline) return 1;
    const float2 of_keys = load_unit(Side::kK);
    barrier_wait(T::unit_full(shared_, units_.stage), units_.parity);
    const float2 of_values = load_unit(Side::kV);
    value_unit_ = of_values.x;
    key_unit_ = of_keys.x;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      exponent_factor_[r] = p_.soft_cap > 0 ? 1.0f : factor_[r] * key_unit_;
    }
    __syncwarp();  // every lane has read them
    if (threadIdx.x % 32 == 0) barrier_arrive(T::unit_empty(shared_, units_.stage));
    units_.advance(T::kUnitStages);
    return of_values.y;
  }

  __device__ float2 load_unit(Side side) const {
    float2 out;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                 : "=f"(out.x), "=f"(out.y)
                 : "r"(T::unit(shared_, side, units_.stage)));
    return out;
  }

  /// soft_cap * tanh(s * factor / soft_cap), in powers of two.
  __device__ void cap_scores(Scores& s) const {
    const float inward = 2 * kPrefillLog2E / p_.soft_cap, outward = p_.soft_cap * kPrefillLog2E;
#pragma unroll
    for (int i = 0; i < T::kKeys / 2; ++i) {
      const float e = exp2_fast(s[i] * (factor_[i / 2 % 2] * key_unit_ * inward));
      s[i] = outward * (1 - __fdividef(2.0f, e + 1));
    }
  }

  __device__ void mask(Scores& s, int first) const {
#pragma unroll
    for (int i = 0; i < T::kKeys / 2; ++i) {
      const int key = first + i / 4 * 8 + 2 * c_ + i % 2, at = position_[i / 2 % 2];
      if (key > at || (p_.window > 0 && key <= at - p_.window)) s[i] = -INFINITY;
    }
  }

  /// Scores are s * exponent_factor_, which is positive.
  __device__ void follow_maximum(const Scores& s, float ratio) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < T::kKeys / 8; ++j) {
        top = fmaxf(top, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
      }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top *= exponent_factor_[r];
      top = top > largest_[r] + kSlack ? top : largest_[r];
      change_[r] = exp2_fast(largest_[r] - top);
      largest_[r] = top;
      sum_[r] *= change_[r];
      change_[r] *= ratio;
    }
  }

  __device__ void weigh(Scores& s) {
    const float base[2] = {kOffset - largest_[0], kOffset - largest_[1]};
#pragma unroll
    for (int j = 0; j < T::kKeys / 8; ++j) {
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = exp2_fast(__fmaf_rn(s[4 * j + i], exponent_factor_[i / 2], base[i / 2]));
      }
      sum_[0] += w[0] + w[1];
      sum_[1] += w[2] + w[3];
#pragma unroll
      for (int i = 0; i < 4; ++i) s[4 * j + i] = w[i];
    }
  }

  /// Once no product reads or adds any more: the result in the new unit, the weights as an operand.
  __device__ void rescale_and_pack(const Scores& s, uint32_t (&weights)[T::kKeys / 16][4]) {
    if (__any_sync(~0u, change_[0] != 1 || change_[1] != 1)) {
#pragma unroll
      for (int n = 0; n < T::kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < T::kOutColumns / 2; ++i) out_[n][i] *= change_[i / 2 % 2];
      }
    }
#pragma unroll
    for (int i = 0; i < T::kKeys / 4; ++i) {
      weights[i / 4][i % 4] = pair(s[2 * i], s[2 * i + 1]);
    }
  }

  __device__ static uint32_t pair(float a, float b) {
    if constexpr (T::kIsBf16) return bf16_pair(a, b);
    return T::kFp8Math ? f16_pair_through_e4m3(a, b) : f16_pair(a, b);
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
      for (int n = 0; n < T::kOutTiles; ++n) {
#pragma unroll
        for (int j = 0; j < T::kOutColumns / 8; ++j) {
          const int d = T::kOutColumns * n + 8 * j + 2 * c_;
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
  PrefillCursor units_;
  float k_scale_, v_scale_, factor_[2] = {1, 1}, exponent_factor_[2], largest_[2], sum_[2],
                            change_[2];
  float key_unit_ = 1, value_unit_ = 1;
  int position_[2];
  float out_[T::kOutTiles][T::kOutColumns / 2];
};

}  // namespace kv::cuda
