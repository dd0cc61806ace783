#pragma once

#include "cuda/sm90/prefill/loader.cuh"
#include "cuda/sm90/prefill/rows.cuh"

// One block computes one PrefillTile. Warpgroup 0 brings keys, warpgroup 1 values from the pages
// into shared memory, codes widened to F16; warpgroups 2 and 3 compute 64 rows each, scores and
// result in registers. See docs/kernels/prefill.md.

namespace kv::cuda {

template <class T>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t aligned[];  // head_dim 256 leaves no room to align it
  const uint32_t shared = shared_address(aligned);
  if (shared % 1024 != 0) __trap();
  const PrefillTile tile = p.tiles[blockIdx.x];
  const KeyRange range = key_range<T>(p, tile);
  if (threadIdx.x == 0) {
    for (const Side side : {Side::kK, Side::kV}) {
      for (int s = 0; s < T::kStages; ++s) {
        barrier_init(T::full(shared, side, s), kLoaderThreads);
        barrier_init(T::empty(shared, side, s), 8);  // the computing warps
      }
    }
    for (int s = 0; s < T::kUnitStages; ++s) {
      barrier_init(T::unit_full(shared, s), kLoaderThreads);
      barrier_init(T::unit_empty(shared, s), 8);
    }
    for (int warp = 0; warp < 4; ++warp) {
      barrier_init(T::arrived(shared, Side::kK, warp), 1);
      barrier_init(T::arrived(shared, Side::kV, warp), 1);
    }
    barrier_init_fence();
  }
  __syncthreads();
  // From one lane, so that the compiler knows it to be the warp's.
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (group < kLoaderGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(T::kLoaderRegisters));
    if (group == 0) load_side<T, Side::kK>(p, tile, range, shared);
    if (group == 1) load_side<T, Side::kV>(p, tile, range, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(T::kWorkerRegisters));
    RowWorker<T>(p, tile, range, shared, group - kLoaderGroups).run();
  }
}

template <class T>
void launch_prefill_variant(const PrefillParams& p, int tiles, StreamHandle stream) {
  auto* kernel = prefill_kernel<T>;
  static const int prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kSharedBytes);
  check(prepared, "attend: shared memory of the prefill kernel");
  kernel<<<static_cast<unsigned>(tiles), kPrefillThreads, T::kSharedBytes, stream>>>(p);
  check_launch("attend: prefill");
}

}  // namespace kv::cuda
