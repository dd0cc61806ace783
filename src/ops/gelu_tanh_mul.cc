#include "ops/gelu_tanh_mul.h"

#include <cmath>
#include <numbers>

#include "cpu/elementwise.h"
#include "ops/gated_rows.h"

namespace kv {

void gelu_tanh_mul(const TensorView& gate_up, const TensorView& out) {
  gated_rows("gelu_tanh_mul", gate_up, out, cpu::gelu_tanh_mul_row);
}

void gelu_tanh_mul_ref(const TensorView& gate_up, const TensorView& out) {
  gated_rows_ref("gelu_tanh_mul", gate_up, out, [](double x) {
    const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return x / (1 + std::exp(-2 * inner));  // (1 + tanh) / 2 without the cancellation
  });
}

}  // namespace kv
