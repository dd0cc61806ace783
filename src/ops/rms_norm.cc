#include "ops/rms_norm.h"

#include <cmath>

#include "cpu/elementwise.h"
#include "numeric/bf16.h"
#include "tensor/shape.h"

namespace kv {
namespace {

void check(const TensorView& x, std::span<const float> weight, const TensorView& out) {
  Dim rows{"rows"}, size{"size", static_cast<int64_t>(weight.size())};
  expect("rms_norm", "x", x, DType::kF32, {&rows, &size});
  expect("rms_norm", "out", out, DType::kBF16, {&rows, &size});
}

}  // namespace

void rms_norm(const TensorView& x, std::span<const float> weight, float eps,
              const TensorView& out) {
  check(x, weight, out);
#pragma omp parallel for schedule(static) if (x.sizes[0] >= 8)
  for (int64_t r = 0; r < x.sizes[0]; ++r) {
    cpu::rms_norm_row(x.as<const float>() + r * x.strides[0], weight.data(), x.sizes[1], eps,
                      out.as<uint16_t>() + r * out.strides[0]);
  }
}

void rms_norm_in_place(const TensorView& x, std::span<const float> weight, float eps) {
  Dim rows{"rows"}, groups{"groups"}, size{"size", static_cast<int64_t>(weight.size())};
  expect("rms_norm_in_place", "x", x, DType::kF32, {&rows, &groups, &size});
#pragma omp parallel for schedule(static) if (rows.size >= 8)
  for (int64_t r = 0; r < x.sizes[0]; ++r) {
    for (int64_t g = 0; g < x.sizes[1]; ++g) {
      cpu::rms_norm_row(x.as<float>() + r * x.strides[0] + g * x.strides[1], weight.data(),
                        x.sizes[2], eps);
    }
  }
}

void rms_norm_ref(const TensorView& x, std::span<const float> weight, float eps,
                  const TensorView& out) {
  check(x, weight, out);
  for (int64_t r = 0; r < x.sizes[0]; ++r) {
    const float* row = x.as<const float>() + r * x.strides[0];
    double squares = 0;
    for (int64_t i = 0; i < x.sizes[1]; ++i) squares += static_cast<double>(row[i]) * row[i];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.sizes[1]) + eps);
    for (int64_t i = 0; i < x.sizes[1]; ++i) {
      out.as<uint16_t>()[r * out.strides[0] + i] =
          bf16::encode(static_cast<float>(row[i] * factor * weight[static_cast<size_t>(i)]));
    }
  }
}

}  // namespace kv
