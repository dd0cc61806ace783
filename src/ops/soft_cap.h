#pragma once

#include "tensor/view.h"

namespace kv {

/// x = cap * tanh(x / cap) in place, x [rows, size] f32, cap > 0. Throws ShapeError.
void soft_cap(const TensorView& x, float cap);

}  // namespace kv
