#pragma once

#include "tensor/view.h"

namespace kv {

/// out = bf16(silu(gate) * up), silu(x) = x / (1 + exp(-x)).
///
/// gate_up [rows, 2 * size] f32, the gate first      out [rows, size] bf16
///
/// Computes in F32. Throws ShapeError.
void silu_mul(const TensorView& gate_up, const TensorView& out);

/// The same in double.
void silu_mul_ref(const TensorView& gate_up, const TensorView& out);

}  // namespace kv
