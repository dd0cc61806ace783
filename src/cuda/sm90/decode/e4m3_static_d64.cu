#include "cuda/sm90/decode/decode_kernel.cuh"

namespace kv::cuda {

template <>
void launch_decode_e4m3_static<64>(const DecodeLaunch& l) {
  using Cell = E4m3Cell<64, false>;
  if (l.query_tiles == 1 && !l.fp8_math) return launch_decode_variant<Cell, 1, false>(l);
  if (l.query_tiles == 1) return launch_decode_variant<Cell, 1, true>(l);
  if (!l.fp8_math) return launch_decode_variant<Cell, 2, false>(l);
  launch_decode_variant<Cell, 2, true>(l);
}

}  // namespace kv::cuda
