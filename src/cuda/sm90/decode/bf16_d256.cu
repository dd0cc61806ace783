#include "cuda/sm90/decode/decode_kernel.cuh"

namespace kv::cuda {

template <>
void launch_decode_bf16<256>(const DecodeLaunch& l) {
  if (l.query_tiles == 1) return launch_decode_variant<Bf16Cell<256>, 1, false>(l);
  launch_decode_variant<Bf16Cell<256>, 2, false>(l);
}

}  // namespace kv::cuda
