#include "cuda/sm90/prefill/prefill_kernel.cuh"

namespace kv::cuda {

template <>
void launch_prefill_e4m3_per_token_head<96>(const PrefillParams& p, int tiles,
                                            StreamHandle stream) {
  launch_prefill_variant<PrefillTraits<PrefillCells::kInline, 96, false>>(p, tiles, stream);
}

}  // namespace kv::cuda
