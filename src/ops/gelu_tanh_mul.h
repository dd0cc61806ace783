#pragma once

#include "tensor/view.h"

namespace kv {

/// out = bf16(gelu(gate) * up), gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
///
/// gate_up [rows, 2 * size] f32, the gate first      out [rows, size] bf16
///
/// Computes in F32. Throws ShapeError.
void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out);

/// The same in double.
void gelu_tanh_mul_ref(const TensorView& gate_up, const TensorView& out);

}  // namespace kv
