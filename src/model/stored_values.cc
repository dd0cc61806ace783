#include "model/stored_values.h"

#include "numeric/bf16.h"
#include "numeric/e5m2.h"

namespace kv {

void round_to_e5m2(std::span<uint16_t> halves, Rounding rounding) {
  for (uint16_t& half : halves) {
    half = bf16::encode(e5m2::decode(e5m2::encode(bf16::decode(half), rounding)));
  }
}

}  // namespace kv
