#include "cuda/sm90/append/store_kernel.cuh"

namespace kv::cuda {

void launch_store_e4m3_static(const StoreParams& params, Rounding rounding, StreamHandle stream) {
  launch_store<StoreClass::kStatic>(params, rounding, stream);
}

}  // namespace kv::cuda
