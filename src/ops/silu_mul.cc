#include "ops/silu_mul.h"

#include <cmath>

#include "cpu/elementwise.h"
#include "ops/gated_rows.h"

namespace kv {

void silu_mul(const TensorView& gate_up, const TensorView& out) {
  gated_rows("silu_mul", gate_up, out, cpu::silu_mul_row);
}

void silu_mul_ref(const TensorView& gate_up, const TensorView& out) {
  gated_rows_ref("silu_mul", gate_up, out, [](double x) { return x / (1 + std::exp(-x)); });
}

}  // namespace kv
