#pragma once

#include "cuda/sm90/ptx.cuh"

namespace kv::cuda {

/// Tiles for warpgroup products lie in shared memory as rows of 64 16-bit values (128 bytes), their
/// 16-byte chunks swizzled by the row's number modulo 8. Bases are multiples of 1024 bytes.
__device__ inline uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

/// Descriptor of such a tile: 8 rows (1024 bytes) to the next group; swizzle of 128 bytes.
__device__ inline uint64_t tile_descriptor(uint32_t address) {
  return (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 16) |
         ((address & 0x3ffff) >> 4);
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
#define KV_D32                                                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31}"

/// d[64 x 64] (+)= a * b^T; a and b rows of 16 values along the summed dimension, in shared memory.
template <bool kBf16>
__device__ inline void product_shared(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  if constexpr (kBf16) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KV_D32
        ", %32, %33, p, 1, 1, 0, 0; }"
        : KV_ACC32
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  } else {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0;"
        " wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " KV_D32 ", %32, %33, p, 1, 1, 0, 0; }"
        : KV_ACC32
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
  }
}

/// d[64 x 64] += a * b; a from registers, b [16 x 64] with the summed dimension along its rows.
template <bool kBf16>
__device__ inline void product_registers(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kBf16) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " KV_D32
                 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : KV_ACC32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " KV_D32
                 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : KV_ACC32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}

#undef KV_ACC8
#undef KV_ACC32
#undef KV_D32

}  // namespace kv::cuda
