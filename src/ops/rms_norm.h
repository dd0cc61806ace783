#pragma once

#include <span>

#include "tensor/view.h"

namespace kv {

/// out = bf16(x / sqrt(mean(x^2) + eps) * weight), mean over the last dimension.
///
/// x [rows, size] f32      weight [size] f32      out [rows, size] bf16
///
/// Computes in F32. Reads 4 and writes 2 bytes a value. Throws ShapeError.
void rms_norm(const TensorView& x, std::span<const float> weight, float eps, const TensorView& out);

/// x = x / sqrt(mean(x^2) + eps) * weight in place, mean over the last dimension.
///
/// x [rows, groups, size] f32, rows may be strided      weight [size] f32
///
/// Computes in F32. Throws ShapeError.
void rms_norm_in_place(const TensorView& x, std::span<const float> weight, float eps);

/// The same as rms_norm in double.
void rms_norm_ref(const TensorView& x, std::span<const float> weight, float eps,
                  const TensorView& out);

}  // namespace kv
