#include "cuda/limits.h"
#include "cuda/sm90/ptx.cuh"
#include "numeric/bf16.h"

namespace kv::cuda {
namespace {

constexpr int kStages = 12, kBytes = 16384;

__global__ void __launch_bounds__(32) read_kernel(const uint8_t* data, int64_t pieces) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ __align__(8) uint64_t barriers[kStages];
  // Lane s owns stage s; the stages of a block take the block's pieces in turn.
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= kStages) return;
  const uint32_t barrier = shared_address(&barriers[lane]);
  const uint32_t to = shared_address(shared) + static_cast<uint32_t>(lane) * kBytes;
  barrier_init(barrier, 1);
  barrier_init_fence();
  async_proxy_fence();
  uint32_t parity = 0;
  for (int64_t i = blockIdx.x + int64_t{lane} * gridDim.x; i < pieces;
       i += int64_t{kStages} * gridDim.x) {
    barrier_expect_bytes(barrier, kBytes);
    bulk_copy(to, data + i * kBytes, kBytes, barrier);
    barrier_wait(barrier, parity);
    parity ^= 1;
  }
}

__device__ uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__global__ void normal_kernel(uint16_t* values, int64_t pairs, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < pairs; i += step) {
    const uint64_t bits = mixed(seed * 0x100000001b3ull + static_cast<uint64_t>(i));
    const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    const float angle = 6.2831853f * static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float radius = sqrtf(-2 * logf(u));
    values[2 * i] = bf16::encode(radius * cosf(angle));
    values[2 * i + 1] = bf16::encode(radius * sinf(angle));
  }
}

}  // namespace

void read_all(const void* data, int64_t bytes, StreamHandle stream) {
  static const int prepared = cudaFuncSetAttribute(
      read_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kStages * kBytes);
  check(prepared, "read_all: shared memory");
  read_kernel<<<device_info().num_sms, 32, kStages * kBytes, stream>>>(
      static_cast<const uint8_t*>(data), bytes / kBytes);
  check_launch("read_all");
}

void fill_normal(uint16_t* values, int64_t count, uint64_t seed, StreamHandle stream) {
  normal_kernel<<<device_info().num_sms * 8, 256, 0, stream>>>(values, count / 2, seed);
  check_launch("fill_normal");
}

}  // namespace kv::cuda
