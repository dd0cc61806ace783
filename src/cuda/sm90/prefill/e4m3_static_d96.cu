#include "cuda/sm90/prefill/prefill_kernel.cuh"

namespace kv::cuda {

template <>
void launch_prefill_e4m3_static<96>(const PrefillParams& p, int tiles, bool fp8_math,
                                    StreamHandle stream) {
  if (fp8_math)
    return launch_prefill_variant<PrefillTraits<PrefillCells::kStatic, 96, true>>(p, tiles, stream);
  launch_prefill_variant<PrefillTraits<PrefillCells::kStatic, 96, false>>(p, tiles, stream);
}

}  // namespace kv::cuda
