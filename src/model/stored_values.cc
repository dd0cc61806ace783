#include "model/stored_values.h"

#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/e5m2.h"

namespace kv {

void round_to(StoredValues values, std::span<uint16_t> halves, Rounding rounding) {
  if (values == StoredValues::kOfFormat) return;
  for (uint16_t& half : halves) {
    const float x = bf16::decode(half);
    half = bf16::encode(values == StoredValues::kE5m2 ? e5m2::decode(e5m2::encode(x, rounding))
                                                      : e4m3::decode(e4m3::encode(x, rounding)));
  }
}

}  // namespace kv
