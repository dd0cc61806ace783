#include "ops/add.h"

#include <fmt/core.h>

#include "cpu/elementwise.h"
#include "kvscale/error.h"
#include "tensor/shape.h"

namespace kv {
namespace {

void check_bias(std::span<const float> bias, int64_t size) {
  if (bias.empty() || static_cast<int64_t>(bias.size()) == size) return;
  throw ShapeError(fmt::format("add: bias: expected [{}], found [{}]", size, bias.size()));
}

}  // namespace

void add_bias(const TensorView& x, std::span<const float> bias, const TensorView& out) {
  Dim rows{"rows"}, size{"size"};
  expect("add_bias", "x", x, DType::kF32, {&rows, &size});
  expect("add_bias", "out", out, DType::kBF16, {&rows, &size});
  check_bias(bias, size.size);
#pragma omp parallel for schedule(static) if (rows.size >= 16)
  for (int64_t r = 0; r < rows.size; ++r) {
    cpu::add_bias_row(x.as<const float>() + r * x.strides[0], bias.empty() ? nullptr : bias.data(),
                      size.size, out.as<uint16_t>() + r * out.strides[0]);
  }
}

void add_residual(const TensorView& x, std::span<const float> bias, const TensorView& y) {
  Dim rows{"rows"}, size{"size"};
  expect("add_residual", "x", x, DType::kF32, {&rows, &size});
  expect("add_residual", "y", y, DType::kF32, {&rows, &size});
  check_bias(bias, size.size);
#pragma omp parallel for schedule(static) if (rows.size >= 16)
  for (int64_t r = 0; r < rows.size; ++r) {
    float* row = y.as<float>() + r * y.strides[0];
    cpu::add_row(x.as<const float>() + r * x.strides[0], size.size, row);
    if (!bias.empty()) cpu::add_row(bias.data(), size.size, row);
  }
}

}  // namespace kv
