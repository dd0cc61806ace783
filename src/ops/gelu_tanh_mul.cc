#include "ops/gelu_tanh_mul.h"

#include <cmath>
#include <numbers>

#include "cpu/elementwise.h"
#include "numeric/bf16.h"
#include "tensor/shape.h"

namespace kv {
namespace {

void check(const TensorView& gate_up, const TensorView& out) {
  Dim rows{"rows"}, size{"size"};
  expect("gelu_tanh_mul", "out", out, DType::kBF16, {&rows, &size});
  Dim both{"2 * size", 2 * size.size};
  expect("gelu_tanh_mul", "gate_up", gate_up, DType::kF32, {&rows, &both});
}

double gelu_tanh(double x) {
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * inner));  // (1 + tanh) / 2 without the cancellation
}

}  // namespace

void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out) {
  check(gate_up, out);
  const int64_t size = out.sizes[1];
#pragma omp parallel for schedule(static) if (out.sizes[0] >= 4)
  for (int64_t r = 0; r < out.sizes[0]; ++r) {
    const float* gate = gate_up.as<const float>() + r * gate_up.strides[0];
    cpu::gelu_tanh_mul_row(gate, gate + size, size, out.as<uint16_t>() + r * out.strides[0]);
  }
}

void gelu_tanh_mul_ref(const TensorView& gate_up, const TensorView& out) {
  check(gate_up, out);
  const int64_t size = out.sizes[1];
  for (int64_t r = 0; r < out.sizes[0]; ++r) {
    const float* gate = gate_up.as<const float>() + r * gate_up.strides[0];
    for (int64_t i = 0; i < size; ++i) {
      out.as<uint16_t>()[r * out.strides[0] + i] =
          bf16::encode(static_cast<float>(gelu_tanh(gate[i]) * gate[size + i]));
    }
  }
}

}  // namespace kv
