#pragma once

#include <cuda_runtime.h>

#include <string>

#include "cuda/device.h"

namespace kv::cuda {

/// Launches so that the start overlaps the end of the launch before (which lets it, or not); the
/// kernel waits for that launch itself (wait_for_predecessor). `op` is who an error names.
template <class... Params>
void launch_overlapping(const char* op, void (*kernel)(Params...), int blocks, int threads,
                        int shared_bytes, StreamHandle stream, const Params&... params) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, params...), std::string(op) + ": launch");
}

}  // namespace kv::cuda
