#include "cuda/sm90/append/store_kernel.cuh"

namespace kv::cuda {

void launch_store_e4m3_per_token_head(const StoreParams& params, Rounding rounding,
                                      StreamHandle stream) {
  launch_store<StoreClass::kInline>(params, rounding, stream);
}

}  // namespace kv::cuda
