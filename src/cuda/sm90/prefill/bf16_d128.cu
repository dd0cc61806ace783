#include "cuda/sm90/prefill/prefill_kernel.cuh"

namespace kv::cuda {

template <>
void launch_prefill_bf16<128>(const PrefillParams& p, int tiles, StreamHandle stream) {
  launch_prefill_variant<PrefillTraits<PrefillCells::kBf16, 128, false>>(p, tiles, stream);
}

}  // namespace kv::cuda
