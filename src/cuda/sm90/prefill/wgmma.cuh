#pragma once

#include "cuda/sm90/ptx.cuh"

namespace kv::cuda {

/// Tiles for warpgroup products lie in shared memory as rows of 128 bytes, their 16-byte chunks
/// swizzled by the row's number modulo 8; or of 64 bytes (E4M3, head_dim 64), swizzled by every
/// second row's number modulo 4. Bases are multiples of 1024 bytes.
template <int kRowBytes = 128>
__device__ inline uint32_t swizzled(int row, int chunk) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  const int flip = kRowBytes == 128 ? row & 7 : row >> 1 & 3;
  return static_cast<uint32_t>(row * kRowBytes + ((chunk ^ flip) << 4));
}

/// Descriptor of such a tile: 8 rows to the next group. Where the summed dimension runs along the
/// rows, columns 64 and up lie `next_columns` bytes further on.
template <int kRowBytes = 128>
__device__ inline uint64_t tile_descriptor(uint32_t address, uint32_t next_columns = 16) {
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : 2;
  return (kSwizzle << 62) | (uint64_t{8 * kRowBytes >> 4} << 32) |
         (uint64_t{next_columns >> 4} << 16) | ((address & 0x3ffff) >> 4);
}

__device__ inline void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define KV_ACC8(i)                                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KV_ACC32 KV_ACC8(0), KV_ACC8(8), KV_ACC8(16), KV_ACC8(24)
#define KV_ACC64 KV_ACC32, KV_ACC8(32), KV_ACC8(40), KV_ACC8(48), KV_ACC8(56)
#define KV_D32                                                                             \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define KV_D64                                                                                    \
  KV_D32                                                                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54," \
  "%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define KV_PRODUCT_SHARED(shape, types, list, accumulators, a_, b_, add_, orders)                \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " add_ ", 0; wgmma.mma_async.sync.aligned." shape \
               ".f32." types " {" list "}, " a_ ", " b_ ", p, 1, 1" orders "; }"                 \
               : accumulators                                                                    \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define KV_PRODUCT_REGISTERS(shape, types, list, accumulators, a_, b_)                 \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {" list "}, {" a_ \
               "},"                                                                    \
               " " b_ ", 1, 1, 1, 1;"                                                  \
               : accumulators                                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/// d[64 x 2 kFloats] (+)= a * b^T; a and b rows of 16 values along the summed dimension, in shared
/// memory. A product twice as wide reads a once instead of twice: shared memory is what binds.
template <bool kBf16>
__device__ inline void product_shared(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  if constexpr (kBf16) {
    KV_PRODUCT_SHARED("m64n64k16", "bf16.bf16", KV_D32, KV_ACC32, "%32", "%33", "%34", ", 0, 0");
  } else {
    KV_PRODUCT_SHARED("m64n64k16", "f16.f16", KV_D32, KV_ACC32, "%32", "%33", "%34", ", 0, 0");
  }
}
template <bool kBf16>
__device__ inline void product_shared(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  if constexpr (kBf16) {
    KV_PRODUCT_SHARED("m64n128k16", "bf16.bf16", KV_D64, KV_ACC64, "%64", "%65", "%66", ", 0, 0");
  } else {
    KV_PRODUCT_SHARED("m64n128k16", "f16.f16", KV_D64, KV_ACC64, "%64", "%65", "%66", ", 0, 0");
  }
}

/// d[64 x 2 kFloats] += a * b; a from registers, b [16 x 2 kFloats] with the summed dimension along
/// its rows.
template <bool kBf16>
__device__ inline void product_registers(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kBf16) {
    KV_PRODUCT_REGISTERS("m64n64k16", "bf16.bf16", KV_D32, KV_ACC32, "%32,%33,%34,%35", "%36");
  } else {
    KV_PRODUCT_REGISTERS("m64n64k16", "f16.f16", KV_D32, KV_ACC32, "%32,%33,%34,%35", "%36");
  }
}
template <bool kBf16>
__device__ inline void product_registers(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kBf16) {
    KV_PRODUCT_REGISTERS("m64n128k16", "bf16.bf16", KV_D64, KV_ACC64, "%64,%65,%66,%67", "%68");
  } else {
    KV_PRODUCT_REGISTERS("m64n128k16", "f16.f16", KV_D64, KV_ACC64, "%64,%65,%66,%67", "%68");
  }
}

/// The same of E4M3 codes, rows of 32 of them along the summed dimension on both sides.
__device__ inline void e4m3_product_shared(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  KV_PRODUCT_SHARED("m64n128k32", "e4m3.e4m3", KV_D64, KV_ACC64, "%64", "%65", "%66", "");
}

#define KV_E4M3_PRODUCT_REGISTERS(shape, list, accumulators, a_, b_, add_)                       \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " add_ ", 0; wgmma.mma_async.sync.aligned." shape \
               ".f32.e4m3.e4m3 {" list "}, {" a_ "}, " b_ ", p, 1, 1; }"                         \
               : accumulators                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)))
__device__ inline void e4m3_product_registers(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                              bool add) {
  KV_E4M3_PRODUCT_REGISTERS("m64n64k32", KV_D32, KV_ACC32, "%32,%33,%34,%35", "%36", "%37");
}
__device__ inline void e4m3_product_registers(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                              bool add) {
  KV_E4M3_PRODUCT_REGISTERS("m64n128k32", KV_D64, KV_ACC64, "%64,%65,%66,%67", "%68", "%69");
}

#undef KV_E4M3_PRODUCT_REGISTERS
#undef KV_PRODUCT_REGISTERS
#undef KV_PRODUCT_SHARED
#undef KV_ACC8
#undef KV_ACC32
#undef KV_ACC64
#undef KV_D32
#undef KV_D64

}  // namespace kv::cuda
