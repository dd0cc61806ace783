#pragma once

#include "cuda/sm90/prefill/loader.cuh"
#include "cuda/sm90/prefill/rows.cuh"

// One block computes one PrefillTile. Warpgroups 0 and 1 read keys and values from the pages, widen
// codes to F16 and lay tiles out in shared memory; warpgroups 2 and 3 compute 64 rows each, scores
// and result in registers. See docs/kernels/prefill.md.

namespace kv::cuda {

template <class T>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ uint8_t unaligned[];
  const uint32_t shared = (shared_address(unaligned) + 1023) / 1024 * 1024;
  const PrefillTile tile = p.tiles[blockIdx.x];
  const KeyRange range = key_range<T>(p, tile);
  if (threadIdx.x == 0) {
    for (int s = 0; s < T::kStages; ++s) {
      barrier_init(shared + T::kBarriersAt + 16 * s, kLoaderThreads);
      barrier_init(shared + T::kBarriersAt + 16 * s + 8, 8);  // the computing warps
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group < kLoaderGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    KeyLoader<T>(p, tile, range).run(shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
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
