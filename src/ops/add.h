#pragma once

#include <span>

#include "tensor/view.h"

namespace kv {

/// out = bf16(x + bias).
///
/// x [rows, size] f32, rows may be strided      bias [size] f32, or empty      out [rows, size]
/// bf16
void add_bias(const TensorView& x, std::span<const float> bias, const TensorView& out);

/// y += x + bias, the residual's addition.
///
/// x, y [rows, size] f32      bias [size] f32, or empty
void add_residual(const TensorView& x, std::span<const float> bias, const TensorView& y);

}  // namespace kv
