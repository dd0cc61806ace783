#pragma once

#include <cstdint>

#include "numeric/bf16.h"
#include "tensor/shape.h"
#include "tensor/view.h"

namespace kv {

/// What the gated products of feed-forward blocks have in common: out = bf16(f(gate) * up).
inline void check_gated(const char* op, const TensorView& gate_up, const TensorView& out) {
  Dim rows{"rows"}, size{"size"};
  expect(op, "out", out, DType::kBF16, {&rows, &size});
  Dim both{"2 * size", 2 * size.size};
  expect(op, "gate_up", gate_up, DType::kF32, {&rows, &both});
}

/// row(gate, up, size, out) for every row.
template <class Row>
void gated_rows(const char* op, const TensorView& gate_up, const TensorView& out, Row row) {
  check_gated(op, gate_up, out);
  const int64_t size = out.sizes[1];
#pragma omp parallel for schedule(static) if (out.sizes[0] >= 4)
  for (int64_t r = 0; r < out.sizes[0]; ++r) {
    const float* gate = gate_up.as<const float>() + r * gate_up.strides[0];
    row(gate, gate + size, size, out.as<uint16_t>() + r * out.strides[0]);
  }
}

/// The same in double, from the activation.
template <class Activation>
void gated_rows_ref(const char* op, const TensorView& gate_up, const TensorView& out,
                    Activation activation) {
  check_gated(op, gate_up, out);
  const int64_t size = out.sizes[1];
  for (int64_t r = 0; r < out.sizes[0]; ++r) {
    const float* gate = gate_up.as<const float>() + r * gate_up.strides[0];
    for (int64_t i = 0; i < size; ++i) {
      out.as<uint16_t>()[r * out.strides[0] + i] =
          bf16::encode(static_cast<float>(activation(double{gate[i]}) * gate[size + i]));
    }
  }
}

}  // namespace kv
