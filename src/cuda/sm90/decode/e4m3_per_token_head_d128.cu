#include "cuda/sm90/decode/decode_kernel.cuh"

namespace kv::cuda {

template <>
void launch_decode_e4m3_per_token_head<128>(const DecodeLaunch& l) {
  using Cell = E4m3Cell<128, true>;
  if (l.query_tiles == 1) return launch_decode_variant<Cell, 1, false>(l);
  launch_decode_variant<Cell, 2, false>(l);
}

}  // namespace kv::cuda
