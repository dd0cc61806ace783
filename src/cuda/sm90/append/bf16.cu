#include "cuda/sm90/append/store_kernel.cuh"

namespace kv::cuda {

// A copy rounds nothing and loses nothing: one variant serves all.
void launch_store_bf16(const StoreParams& params, Rounding, StreamHandle stream) {
  launch_store_variant<StoreClass::kBf16, false, false>(params, stream);
}

}  // namespace kv::cuda
