#include "ops/soft_cap.h"

#include <cmath>

#include "tensor/shape.h"

namespace kv {

void soft_cap(const TensorView& x, float cap) {
  Dim rows{"rows"}, size{"size"};
  expect("soft_cap", "x", x, DType::kF32, {&rows, &size});
#pragma omp parallel for schedule(static) collapse(2)
  for (int64_t r = 0; r < x.sizes[0]; ++r) {
    for (int64_t i = 0; i < x.sizes[1]; ++i) {
      float& value = x.as<float>()[r * x.strides[0] + i];
      value = cap * std::tanh(value / cap);
    }
  }
}

}  // namespace kv
