#pragma once

#include "cuda/sm90/ptx.cuh"

// How a warp reads cells [K | K scale | V | V scale] of shared memory into fragments. The order of
// dimensions within a product is free as long as both factors agree, so lanes take runs of bytes as
// wide as the cells' alignment allows, and no transposition is needed.
//
// Slots lie a multiple of 128 bytes apart (64 with inline scales), so lanes that read the same
// dimensions of different keys meet on the same banks. Of a BF16 cell, which has twice the bytes,
// they read them in an order of their own instead, skewed by their key, and put the words right in
// registers.

namespace kv::cuda {

__device__ inline float load_shared_float(uint32_t at) {
  float out;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(out) : "r"(at));
  return out;
}

/// kWords words of 4 bytes at once into w[first] ...
template <int kWords, int kSize>
__device__ inline void load_shared(uint32_t at, uint32_t (&w)[kSize], int first) {
  if constexpr (kWords == 4) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[first]), "=r"(w[first + 1]), "=r"(w[first + 2]), "=r"(w[first + 3])
                 : "r"(at));
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(w[first]), "=r"(w[first + 1]) : "r"(at));
  } else {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w[first]) : "r"(at));
  }
}

/// Exchanges words i and i + kDistance of every run of 2 * kDistance.
template <int kDistance, int kSize>
__device__ inline void exchange_if(bool wanted, uint32_t (&w)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    if (i / kDistance % 2 != 0) continue;
    const uint32_t a = w[i], b = w[i + kDistance];
    w[i] = wanted ? b : a;
    w[i + kDistance] = wanted ? a : b;
  }
}

/// The words of one key that a lane (g, c) multiplies: groups of one or two loads, the two in an
/// order that differs between neighbouring rows g.
template <int kDim, int kLoadWords, int kLoads>
struct SkewedKeyWords {
  static constexpr int kLoadsPerGroup = kLoads % 2 == 0 ? 2 : 1;
  static constexpr int kGroups = kLoads / kLoadsPerGroup;
  static constexpr int kWords = kLoadsPerGroup * kLoadWords;
  uint32_t w[kWords];

  __device__ SkewedKeyWords(uint32_t cell, int group, int g, int c) {
    const int skew = kLoadsPerGroup == 2 ? g & 1 : 0;
#pragma unroll
    for (int i = 0; i < kLoadsPerGroup; ++i) {
      const int load = group * kLoadsPerGroup + (i ^ skew);
      load_shared<kLoadWords>(cell + 4 * (load * 4 + c) * kLoadWords, w, i * kLoadWords);
    }
    if constexpr (kLoadsPerGroup == 2) exchange_if<kLoadWords>(skew != 0, w);
  }
};

/// E4M3 cells; kInline: with their scales inside, which leaves 8-byte (K) and 4-byte (V) alignment.
/// Lanes meet on banks (two keys to a bank for K, up to four for V), and shared memory has the time
/// for it; the instructions that would keep them apart cost more.
template <int kDim, bool kInline>
struct E4m3Cell {
  static constexpr int kHeadDim = kDim;
  static constexpr bool kIsFp8 = true, kHasInlineScale = kInline, kHasStaticScale = !kInline;
  static constexpr int kTilesAtOnce = 2;
  using Product = F16Product;

  // ---- keys: lane c takes words of 4 dimensions; a step of 16 dimensions is one word per lane
  // ----
  static constexpr int kKeyLoadWords = !kInline && kDim % 64 == 0 ? 4 : 2;
  static constexpr int kStepsPerKeyGroup = kKeyLoadWords;
  static constexpr int kKeyGroups = kDim / 16 / kKeyLoadWords;

  /// First of the 4 dimensions that lane c multiplies in a step.
  __device__ static int key_dim(int step, int c) {
    const int load = step / kKeyLoadWords, word = step % kKeyLoadWords;
    return 4 * ((load * 4 + c) * kKeyLoadWords + word);
  }

  struct KeyWords {
    uint32_t w[kKeyLoadWords];
    __device__ KeyWords(uint32_t cell, int group, int, int c) {
      load_shared<kKeyLoadWords>(cell + 4 * (group * 4 + c) * kKeyLoadWords, w, 0);
    }
    __device__ uint32_t first(int i) const { return e4m3_to_f16(w[i]); }
    __device__ uint32_t second(int i) const { return e4m3_high_to_f16(w[i]); }
  };

  // ---- values: lanes of row g take words of 4 dimensions, 32 apart; a word gives two tiles ----
  static constexpr int kValueGroups = kDim / 32, kTilesPerValueGroup = 2;
  static constexpr int kRun = 4;  // neighbouring dimensions that two tiles hold

  __device__ static int value_dim(int tile, int g) {
    return 32 * (tile / 2) + 4 * g + 2 * (tile % 2);
  }

  struct ValueWords {
    uint32_t w[1];
    __device__ ValueWords(uint32_t at, int group, int g, int) {
      load_shared<1>(at + 32 * group + 4 * g, w, 0);
    }
  };

  /// Keys a and b, dimensions value_dim(i) and the next, as two pairs of F16.
  __device__ static void pair_keys(const ValueWords& a, const ValueWords& b, int i, uint32_t& first,
                                   uint32_t& second) {
    const uint32_t both = __byte_perm(a.w[0], b.w[0], i == 0 ? 0x5140 : 0x7362);
    first = e4m3_to_f16(both);
    second = e4m3_high_to_f16(both);
  }
};

template <int kDim>
struct Bf16Cell {
  static constexpr int kHeadDim = kDim;
  static constexpr bool kIsFp8 = false, kHasInlineScale = false, kHasStaticScale = false;
  static constexpr int kTilesAtOnce = 1;  // two would leave one stage of three to the copies
  using Product = Bf16Product;

  // Lane c takes 8 dimensions of a load: two steps.
  using KeyLoads = SkewedKeyWords<kDim, 4, kDim / 32>;
  static constexpr int kKeyGroups = KeyLoads::kGroups, kStepsPerKeyGroup = KeyLoads::kWords / 2;

  __device__ static int key_dim(int step, int c) { return 8 * (step / 2 * 4 + c) + 4 * (step % 2); }

  struct KeyWords : KeyLoads {
    using KeyLoads::KeyLoads;
    __device__ uint32_t first(int i) const { return this->w[2 * i]; }
    __device__ uint32_t second(int i) const { return this->w[2 * i + 1]; }
  };

  // Lanes of row g take two loads of 4 words (2 where head_dim is no multiple of 64), in an order
  // that differs between neighbouring c; a word of 2 dimensions is one tile.
  static constexpr int kLoadWords = kDim % 128 == 0 ? 4 : kDim % 64 == 0 ? 2 : 1;
  static constexpr int kValueWords = 2 * kLoadWords;
  static constexpr int kValueGroups = kDim / 16 / kValueWords;
  static constexpr int kTilesPerValueGroup = kValueWords;
  static constexpr int kRun = 2;

  __device__ static int value_dim(int tile, int g) {
    return 2 * ((tile / kValueWords * 8 + g) * kValueWords + tile % kValueWords);
  }

  struct ValueWords {
    uint32_t w[kValueWords];
    __device__ ValueWords(uint32_t at, int group, int g, int c) {
      const int skew = c & 1;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_shared<kLoadWords>(at + 4 * ((group * 8 + g) * kValueWords + (i ^ skew) * kLoadWords),
                                w, i * kLoadWords);
      }
      exchange_if<kLoadWords>(skew != 0, w);
    }
  };

  __device__ static void pair_keys(const ValueWords& a, const ValueWords& b, int i, uint32_t& first,
                                   uint32_t& second) {
    first = __byte_perm(a.w[i], b.w[i], 0x5410);
    second = __byte_perm(a.w[i], b.w[i], 0x7632);
  }
};

}  // namespace kv::cuda
