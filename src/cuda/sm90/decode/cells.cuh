#pragma once

#include "cuda/sm90/ptx.cuh"

// How a warp reads cells [K | K scale | V | V scale] of shared memory into fragments. The order of
// dimensions within a product is free as long as both factors agree, so lanes take runs of bytes as
// wide as the cells' alignment allows, and no transposition is needed.

namespace kv::cuda {

__device__ inline float load_shared_float(uint32_t at) {
  float out;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(out) : "r"(at));
  return out;
}

template <int kWords>
__device__ inline void load_shared(uint32_t at, uint32_t (&w)[kWords]) {
  if constexpr (kWords == 4) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at));
  } else if constexpr (kWords == 2) {
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(at));
  } else {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w[0]) : "r"(at));
  }
}

/// E4M3 cells; kInline: with their scales inside, which leaves 8-byte (K) and 4-byte (V) alignment.
template <int kDim, bool kInline>
struct E4m3Cell {
  static constexpr int kHeadDim = kDim;
  static constexpr bool kIsFp8 = true, kHasInlineScale = kInline, kHasStaticScale = !kInline;
  using Product = F16Product;

  // ---- keys: lane c takes words of 4 dimensions; a step of 16 dimensions is one word per lane ----
  static constexpr int kKeyLoadWords = !kInline && kDim % 64 == 0 ? 4 : 2;
  static constexpr int kStepsPerKeyLoad = kKeyLoadWords;
  static constexpr int kKeyLoads = kDim / 16 / kKeyLoadWords;

  /// First of the 4 dimensions that lane c multiplies in a step.
  __device__ static int key_dim(int step, int c) {
    const int load = step / kKeyLoadWords, word = step % kKeyLoadWords;
    return 4 * ((load * 4 + c) * kKeyLoadWords + word);
  }

  struct KeyWords {
    uint32_t w[kKeyLoadWords];
    __device__ KeyWords(uint32_t cell, int load, int c) {
      load_shared(cell + 4 * (load * 4 + c) * kKeyLoadWords, w);
    }
    __device__ uint32_t first(int i) const { return e4m3_to_f16(w[i]); }
    __device__ uint32_t second(int i) const { return e4m3_to_f16(w[i] >> 16); }
  };

  // ---- values: lanes of row g take words of 4 dimensions; a word gives two tiles ----
  static constexpr int kValueLoadWords = kInline || kDim % 64 != 0 ? 1 : (kDim % 128 == 0 ? 4 : 2);
  static constexpr int kTilesPerValueLoad = 2 * kValueLoadWords;
  static constexpr int kValueLoads = kDim / 32 / kValueLoadWords;

  __device__ static int value_dim(int tile, int g) {
    const int word = tile / 2, load = word / kValueLoadWords;
    return 4 * ((load * 8 + g) * kValueLoadWords + word % kValueLoadWords) + 2 * (tile % 2);
  }

  struct ValueWords {
    uint32_t w[kValueLoadWords];
    __device__ ValueWords(uint32_t at, int load, int g) {
      load_shared(at + 4 * (load * 8 + g) * kValueLoadWords, w);
    }
  };

  /// Keys a and b, dimensions value_dim(i) and the next, as two pairs of F16.
  __device__ static void pair_keys(const ValueWords& a, const ValueWords& b, int i, uint32_t& first,
                                   uint32_t& second) {
    const uint32_t both = __byte_perm(a.w[i / 2], b.w[i / 2], i % 2 == 0 ? 0x5140 : 0x7362);
    first = e4m3_to_f16(both);
    second = e4m3_to_f16(both >> 16);
  }
};

template <int kDim>
struct Bf16Cell {
  static constexpr int kHeadDim = kDim;
  static constexpr bool kIsFp8 = false, kHasInlineScale = false, kHasStaticScale = false;
  using Product = Bf16Product;

  // Lane c takes 8 dimensions: two steps.
  static constexpr int kStepsPerKeyLoad = 2;
  static constexpr int kKeyLoads = kDim / 32;

  __device__ static int key_dim(int step, int c) { return 8 * (step / 2 * 4 + c) + 4 * (step % 2); }

  struct KeyWords {
    uint32_t w[4];
    __device__ KeyWords(uint32_t cell, int load, int c) {
      load_shared(cell + 16 * (load * 4 + c), w);
    }
    __device__ uint32_t first(int i) const { return w[2 * i]; }
    __device__ uint32_t second(int i) const { return w[2 * i + 1]; }
  };

  // Lanes of row g take words of 2 dimensions: one tile each.
  static constexpr int kValueLoadWords = kDim % 64 == 0 ? 4 : 2;
  static constexpr int kTilesPerValueLoad = kValueLoadWords;
  static constexpr int kValueLoads = kDim / 16 / kValueLoadWords;

  __device__ static int value_dim(int tile, int g) {
    const int load = tile / kValueLoadWords;
    return 2 * ((load * 8 + g) * kValueLoadWords + tile % kValueLoadWords);
  }

  struct ValueWords {
    uint32_t w[kValueLoadWords];
    __device__ ValueWords(uint32_t at, int load, int g) {
      load_shared(at + 4 * (load * 8 + g) * kValueLoadWords, w);
    }
  };

  __device__ static void pair_keys(const ValueWords& a, const ValueWords& b, int i, uint32_t& first,
                                   uint32_t& second) {
    first = __byte_perm(a.w[i], b.w[i], 0x5410);
    second = __byte_perm(a.w[i], b.w[i], 0x7632);
  }
};

}  // namespace kv::cuda
