#pragma once

#include "cuda/sm90/decode/cells.cuh"
#include "cuda/sm90/decode/decode_params.h"
#include "cuda/sm90/ptx.cuh"

namespace kv::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

/// Softmax and result of one KV head's queries over the tiles that one warp has seen.
///
/// Keys are the M side of both products: scores are [16 keys x 8 queries], the result is
/// [head_dim x 8 queries], so that a group of 4 queries wastes half of N and not three quarters of
/// M. Lane (g, c) = (lane / 4, lane % 4) holds rows g and g + 8 of the keys and queries 2c and
/// 2c + 1. Which key is which row is key_of_row's choice.
///
/// The running maximum only follows a score that exceeds it by more than kSlack (in powers of two):
/// until then no lane asks another, and rescaling is rare. Weights then reach 2^kSlack.
template <class Cell, int kQueryTiles, bool kFp8Math>
class TileState {
  static constexpr int kHeadDim = Cell::kHeadDim;
  static constexpr int kSteps = kHeadDim / 16;  // products along head_dim; tiles of the result
  static constexpr float kSlack = kFp8Math ? 0.0f : 8.0f;
  // P in E4M3 keeps 8 binades more of small weights when it is offset by 2^8 (as FlashAttention-3).
  static constexpr float kOffset = kFp8Math ? 8.0f : 0.0f;
  static constexpr float kLowest = -1e30f;  // below every score, and finite: no infinity minus one

 public:
  __device__ explicit TileState(const DecodeParams& p)
      : p_(p),
        g_(threadIdx.x % 32 / 4),
        c_(threadIdx.x % 4),
        key_at_{key_cell(0, key_of_row(g_)), key_cell(0, key_of_row(g_) + 8)},
        value_at_{value_cell(0), value_cell(1), value_cell(2), value_cell(3)} {
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) largest_[n][j] = kLowest, sum_[n][j] = 0;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[n][i][j] = 0;
      }
    }
  }

  /// Reads the queries of one KV head into the fragments of the score product.
  __device__ void load_queries(int64_t row, int kv_head) {
    const float k_scale = Cell::kHasStaticScale ? __ldg(p_.k_scale + kv_head) : 1.0f;
    if constexpr (Cell::kHasStaticScale) v_scale_ = __ldg(p_.v_scale + kv_head);
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      const int query = 8 * n + g_;
      const uint16_t* from = p_.q + row * p_.q_row_stride +
                             (int64_t{kv_head} * p_.q_per_kv + query) * p_.q_head_stride;
      uint2 raw[kSteps];
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        raw[s] = query < p_.q_per_kv ? *reinterpret_cast<const uint2*>(from + Cell::key_dim(s, c_))
                                     : make_uint2(0, 0);
      }
      const int shift = Cell::kIsFp8 ? scale_shift(raw) : 0;
      const float up = __uint_as_float(static_cast<uint32_t>(127 + shift) << 23);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        q_[n][s][0] = query_pair(raw[s].x, up);
        q_[n][s][1] = query_pair(raw[s].y, up);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {  // lane 4 * query holds the shift of a query
        const int of = __shfl_sync(~0u, shift, 4 * (2 * c_ + j));
        score_scale_[n][j] =
            p_.score_scale * k_scale * __uint_as_float(static_cast<uint32_t>(127 - of) << 23);
      }
    }
  }

  /// Adds kTiles times the 16 keys from first_token[i], whose cells lie at cells[i] in shared
  /// memory: two at once keep more products under way than a warp has of one.
  template <int kTiles>
  __device__ void add_tiles(const uint32_t (&cells)[kTiles], const int (&first_token)[kTiles],
                            int first_key, int seq_len) {
    const bool partly =
        first_token[0] < first_key || first_token[kTiles - 1] + kTileTokens > seq_len;
    if (partly) [[unlikely]] {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) clear_unseen(cells[t], first_token[t], first_key, seq_len);
    }
    Scores s[kTiles];
    float value_scale[kTiles][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      multiply_keys(cells[t], s[t]);
      scale_scores(cells[t], s[t], value_scale[t]);
    }
    if (p_.soft_cap > 0) [[unlikely]] {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) cap(s[t]);
    }
    if (partly) [[unlikely]] {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) mask(s[t], first_token[t], first_key, seq_len);
    }
    follow_maximum(s, value_scale);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      uint32_t weights[kQueryTiles][2];
      weigh(s[t], value_scale[t], weights);
      multiply_values(cells[t], weights);
    }
    if (partly) async_proxy_fence();  // clear_unseen wrote where the copy engine writes next
  }

  __device__ void store_final(int64_t row, int kv_head) {
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float total = sum_over_keys(sum_[n][j]);
        const int query = 8 * n + 2 * c_ + j;
        if (query >= p_.q_per_kv) continue;
        const int64_t head = int64_t{kv_head} * p_.q_per_kv + query;
        if (p_.sinks != nullptr) {
          total += exp2_fast(__ldg(p_.sinks + head) * kLog2E - largest_[n][j] + kOffset);
        }
        const float factor = v_scale_ * value_unit_ / total;
        const int64_t at = row * p_.out_row_stride + head * p_.out_head_stride;
        if (p_.out_is_f32) {
          write_row(static_cast<float*>(p_.out) + at, n, j, factor);
        } else {
          write_row(static_cast<uint16_t*>(p_.out) + at, n, j, factor);
        }
      }
    }
  }

  /// Unnormalised result, maximum and sum, for launch_combine: results [partial][row][head_dim],
  /// sums [row][partial], so that both are read side by side. The offset of P is taken out.
  __device__ void store_partial(int partial, int first_row) {
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float total = sum_over_keys(sum_[n][j]);
        const int query = 8 * n + 2 * c_ + j;
        if (query >= p_.q_per_kv) continue;
        const int64_t row = first_row + query, rows = p_.heads * p_.q_per_kv;
        write_row(p_.partial_out + (partial * rows + row) * kHeadDim, n, j, v_scale_ * value_unit_);
        if (g_ == 0) {
          auto* sums = reinterpret_cast<float2*>(p_.partial_sums) + row * p_.num_partials;
          sums[partial] = {largest_[n][j] - kOffset, total};
        }
      }
    }
  }

 private:
  using Scores = float[kQueryTiles][4];

  /// The power of two that brings the largest magnitude of a query to 2^14 (F16) or 2^7 (E4M3): Q
  /// in F16 is then exact but for values 2^28 times smaller than the largest.
  __device__ int scale_shift(const uint2 (&raw)[kSteps]) const {
    uint32_t amax = 0;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      amax = max(amax, max(raw[s].x & 0x7fffu, (raw[s].x >> 16) & 0x7fffu));
      amax = max(amax, max(raw[s].y & 0x7fffu, (raw[s].y >> 16) & 0x7fffu));
    }
    amax = max(amax, __shfl_xor_sync(~0u, amax, 1));
    amax = max(amax, __shfl_xor_sync(~0u, amax, 2));
    const int exponent = static_cast<int>(amax >> 7) - 127;
    return amax == 0 ? 0 : min((kFp8Math ? 7 : 14) - exponent, 120);
  }

  __device__ static uint32_t query_pair(uint32_t raw, float up) {
    if constexpr (!Cell::kIsFp8) return raw;
    const float low = __uint_as_float(raw << 16) * up;
    const float high = __uint_as_float(raw & 0xffff0000u) * up;
    return kFp8Math ? f16_pair_through_e4m3(low, high) : f16_pair(low, high);
  }

  /// Of inline cells of 8 heads, neighbouring slots lie 64 bytes apart modulo the 128 of all banks:
  /// this order mixes even and odd slots among what is loaded together. Where all slots share their
  /// banks (static scales), the loads' skew alone spreads them (cells.cuh).
  __device__ static int key_of_row(int row) { return 0x57463120 >> (4 * row) & 7; }

  __device__ uint32_t key_cell(uint32_t cells, int key) const {
    return cells + static_cast<uint32_t>(key * p_.smem_slot_stride);
  }

  /// Of rows 2c, 2c + 1, 2c + 8, 2c + 9.
  __device__ uint32_t value_cell(int i) const {
    return key_cell(0, key_of_row(2 * c_ + i % 2) + 8 * (i / 2)) + p_.v_base;
  }

  /// Zeroes the cells of keys that no query sees: their weight is 0, and 0 times what an unwritten
  /// slot holds may be NaN.
  __device__ void clear_unseen(uint32_t cells, int first_token, int first_key, int seq_len) const {
    for (int key = 0; key < kTileTokens; ++key) {
      if (first_token + key >= first_key && first_token + key < seq_len) continue;
      for (int at = 4 * (threadIdx.x % 32); at < p_.cell_bytes; at += 128) {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(key_cell(cells, key) + at), "r"(0) : "memory");
      }
    }
    __syncwarp();
  }

  __device__ void multiply_keys(uint32_t cells, Scores& s) const {
    constexpr int kChains = 4;  // independent sums: a product waits for the one 4 before
    float part[kQueryTiles][kChains][4] = {};
    const uint32_t low = cells + key_at_[0], high = cells + key_at_[1];
#pragma unroll
    for (int group = 0; group < Cell::kKeyGroups; ++group) {
      const typename Cell::KeyWords a(low, group, g_, c_), b(high, group, g_, c_);
#pragma unroll
      for (int i = 0; i < Cell::kStepsPerKeyGroup; ++i) {
        const int step = group * Cell::kStepsPerKeyGroup + i;
        const uint32_t fragment[4] = {a.first(i), b.first(i), a.second(i), b.second(i)};
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          Cell::Product::add(part[n][step % kChains], fragment, q_[n][step][0], q_[n][step][1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[n][j] = (part[n][0][j] + part[n][1][j]) + (part[n][2][j] + part[n][3][j]);
      }
    }
  }

  /// To powers of two: softmax scale, K's scale.
  __device__ void scale_scores(uint32_t cells, Scores& s, float (&value_scale)[2]) {
    float key_scale[2] = {1, 1};
    value_scale[0] = value_scale[1] = 1;
    if constexpr (Cell::kHasInlineScale) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t cell = cells + key_at_[r];
        key_scale[r] = load_shared_float(cell + p_.k_scale_base);
        value_scale[r] = load_shared_float(cell + p_.v_scale_base);
      }
    }
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[n][j] *= score_scale_[n][j % 2];
        if constexpr (Cell::kHasInlineScale) s[n][j] *= key_scale[j / 2];
      }
    }
  }

  /// soft_cap * tanh(x / soft_cap), in powers of two.
  __device__ void cap(Scores& s) const {
    const float inward = 2 * kLog2E / p_.soft_cap, outward = p_.soft_cap * kLog2E;
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (float& x : s[n]) x = outward * (1 - __fdividef(2.0f, exp2_fast(x * inward) + 1));
    }
  }

  __device__ void mask(Scores& s, int first_token, int first_key, int seq_len) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = first_token + key_of_row(g_) + 8 * r;
      if (key >= first_key && key < seq_len) continue;
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) s[n][2 * r] = s[n][2 * r + 1] = -INFINITY;
    }
  }

  /// Moves the maxima (and the unit of V's inline scales) where these tiles exceed them.
  template <int kTiles>
  __device__ void follow_maximum(const Scores (&s)[kTiles], const float (&value_scale)[kTiles][2]) {
    bool exceeds = false;
    float top_scale = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) exceeds |= s[t][n][j] > largest_[n][j % 2] + kSlack;
      }
      top_scale = fmaxf(top_scale, fmaxf(value_scale[t][0], value_scale[t][1]));
    }
    if constexpr (Cell::kHasInlineScale) exceeds |= top_scale > value_unit_;
    if (!__any_sync(~0u, exceeds)) [[likely]]
      return;
    const float unit_ratio = grow_value_unit(top_scale);
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      float factor[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float top = largest_[n][j];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) top = fmaxf(top, fmaxf(s[t][n][j], s[t][n][j + 2]));
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
          top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
        }
        factor[j] = exp2_fast(largest_[n][j] - top);
        largest_[n][j] = top;
        sum_[n][j] *= factor[j];
        factor[j] *= unit_ratio;
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[n][i][j] *= factor[j % 2];
      }
    }
  }

  /// value_unit_ is a power of two at or above every inline scale of V so far; weights times V's
  /// scale are kept in that unit, so that they fit F16. Returns old / new.
  __device__ float grow_value_unit(float top) {
    if constexpr (!Cell::kHasInlineScale) {
      return 1;
    } else {
#pragma unroll
      for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      if (!(top > value_unit_)) return 1;
      const float unit = __uint_as_float((__float_as_uint(top) & 0x7f800000u) + 0x00800000u);
      const float ratio = value_unit_ / unit;
      value_unit_ = unit;
      return ratio;
    }
  }

  /// Weights of this tile as fragments of the second product; their sums.
  __device__ void weigh(const Scores& s, const float (&value_scale)[2],
                        uint32_t (&weights)[kQueryTiles][2]) {
    float times[2] = {1, 1};
    if constexpr (Cell::kHasInlineScale) {
      const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(value_unit_));
      times[0] = value_scale[0] * inverse;
      times[1] = value_scale[1] * inverse;
    }
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
      float w[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        w[j] = exp2_fast(s[n][j] + (kOffset - largest_[n][j % 2]));
      }
      sum_[n][0] += w[0] + w[2];
      sum_[n][1] += w[1] + w[3];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float a = w[2 * r], b = w[2 * r + 1];
        if constexpr (Cell::kHasInlineScale) a *= times[r], b *= times[r];
        weights[n][r] = transpose_8x8(weight_pair(a, b));
      }
    }
  }

  __device__ static uint32_t weight_pair(float a, float b) {
    if constexpr (!Cell::kIsFp8) return bf16_pair(a, b);
    return kFp8Math ? f16_pair_through_e4m3(a, b) : f16_pair(a, b);
  }

  /// Lane (g, c) reads its dimensions of the keys in rows 2c, 2c + 1, 2c + 8, 2c + 9 and pairs up
  /// what the keys of two neighbouring rows have of one dimension.
  __device__ void multiply_values(uint32_t cells, const uint32_t (&weights)[kQueryTiles][2]) {
#pragma unroll
    for (int group = 0; group < Cell::kValueGroups; ++group) {
      const typename Cell::ValueWords k0(cells + value_at_[0], group, g_, c_),
          k1(cells + value_at_[1], group, g_, c_), k8(cells + value_at_[2], group, g_, c_),
          k9(cells + value_at_[3], group, g_, c_);
#pragma unroll
      for (int i = 0; i < Cell::kTilesPerValueGroup; ++i) {
        uint32_t fragment[4];
        Cell::pair_keys(k0, k1, i, fragment[0], fragment[1]);
        Cell::pair_keys(k8, k9, i, fragment[2], fragment[3]);
#pragma unroll
        for (int n = 0; n < kQueryTiles; ++n) {
          Cell::Product::add(out_[n][group * Cell::kTilesPerValueGroup + i], fragment,
                             weights[n][0], weights[n][1]);
        }
      }
    }
  }

  __device__ static float sum_over_keys(float x) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  }

  /// Tile i of the result holds, on lanes of row g, dimensions value_dim(i, g) and the next.
  template <class T>
  __device__ void write_row(T* to, int n, int j, float factor) const {
    constexpr int kTilesPerRun = Cell::kRun / 2;
#pragma unroll
    for (int i = 0; i < kSteps; i += kTilesPerRun) {
      float x[Cell::kRun];
#pragma unroll
      for (int t = 0; t < kTilesPerRun; ++t) {
        x[2 * t] = out_[n][i + t][j] * factor;
        x[2 * t + 1] = out_[n][i + t][j + 2] * factor;
      }
      write_run(to + Cell::value_dim(i, g_), x);
    }
  }

  template <int kRun>
  __device__ static void write_run(float* to, const float (&x)[kRun]) {
#pragma unroll
    for (int i = 0; i < kRun; i += 2) reinterpret_cast<float2*>(to)[i / 2] = {x[i], x[i + 1]};
  }
  template <int kRun>
  __device__ static void write_run(uint16_t* to, const float (&x)[kRun]) {
#pragma unroll
    for (int i = 0; i < kRun; i += 2) {
      reinterpret_cast<uint32_t*>(to)[i / 2] = bf16_pair(x[i], x[i + 1]);
    }
  }

  const DecodeParams& p_;
  const int g_, c_;
  const uint32_t key_at_[2], value_at_[4];  // within a tile: of the keys in this lane's fragments
  float v_scale_ = 1;
  uint32_t q_[kQueryTiles][kSteps][2];
  float score_scale_[kQueryTiles][2], largest_[kQueryTiles][2], sum_[kQueryTiles][2];
  float value_unit_ = Cell::kHasInlineScale ? 0x1p-60f : 1.0f;
  float out_[kQueryTiles][kSteps][4];
};

}  // namespace kv::cuda
