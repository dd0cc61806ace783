#include "ops/rope.h"

#include <fmt/core.h>

#include <cmath>

#include "cpu/elementwise.h"
#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "tensor/shape.h"

namespace kv {
namespace {

void check(const TensorView& x, std::span<const float> bias, std::span<const int32_t> positions,
           const RopeTable& table, const TensorView& out) {
  Dim tokens{"tokens", static_cast<int64_t>(positions.size())}, heads{"heads"},
      dim{"head_dim", 2 * table.half()};
  expect("rope", "x", x, DType::kF32, {&tokens, &heads, &dim});
  expect("rope", "out", out, DType::kBF16, {&tokens, &heads, &dim});
  if (!bias.empty() && static_cast<int64_t>(bias.size()) != heads.size * dim.size) {
    throw ShapeError(
        fmt::format("rope: bias: expected [{}], found [{}]", heads.size * dim.size, bias.size()));
  }
  for (const int32_t position : positions) {
    if (position < 0 || position >= table.max_positions()) {
      throw ValueError(
          fmt::format("rope: position: expected 0 to {} (the model's context), found {}",
                      table.max_positions() - 1, position));
    }
  }
}

}  // namespace

RopeTable::RopeTable(std::span<const double> inv_freq, double attention_factor,
                     int64_t max_positions)
    : half_(static_cast<int64_t>(inv_freq.size())), max_positions_(max_positions) {
  for (int64_t position = 0; position < max_positions; ++position) {
    for (const double frequency : inv_freq) {
      const double angle = static_cast<double>(position) * frequency;
      cos_.push_back(static_cast<float>(std::cos(angle) * attention_factor));
      sin_.push_back(static_cast<float>(std::sin(angle) * attention_factor));
    }
  }
}

void rope(const TensorView& x, std::span<const float> bias, std::span<const int32_t> positions,
          const RopeTable& table, const TensorView& out) {
  check(x, bias, positions, table, out);
#pragma omp parallel for schedule(static) if (x.sizes[0] >= 8)
  for (int64_t t = 0; t < x.sizes[0]; ++t) {
    const int32_t position = positions[static_cast<size_t>(t)];
    for (int64_t head = 0; head < x.sizes[1]; ++head) {
      cpu::rope_head(x.as<const float>() + t * x.strides[0] + head * x.strides[1],
                     bias.empty() ? nullptr : bias.data() + head * x.sizes[2], table.cos(position),
                     table.sin(position), table.half(),
                     out.as<uint16_t>() + t * out.strides[0] + head * out.strides[1]);
    }
  }
}

void rope_ref(const TensorView& x, std::span<const float> bias, std::span<const int32_t> positions,
              const RopeTable& table, const TensorView& out) {
  check(x, bias, positions, table, out);
  const int64_t half = table.half();
  for (int64_t t = 0; t < x.sizes[0]; ++t) {
    const float* cos = table.cos(positions[static_cast<size_t>(t)]);
    const float* sin = table.sin(positions[static_cast<size_t>(t)]);
    for (int64_t head = 0; head < x.sizes[1]; ++head) {
      const float* from = x.as<const float>() + t * x.strides[0] + head * x.strides[1];
      uint16_t* to = out.as<uint16_t>() + t * out.strides[0] + head * out.strides[1];
      for (int64_t i = 0; i < half; ++i) {
        const auto with_bias = [&](int64_t d) {
          return static_cast<double>(from[d]) +
                 (bias.empty() ? 0.0f : bias[static_cast<size_t>(head * 2 * half + d)]);
        };
        const double a = with_bias(i), b = with_bias(half + i);
        to[i] = bf16::encode(static_cast<float>(a * cos[i] - b * sin[i]));
        to[half + i] = bf16::encode(static_cast<float>(b * cos[i] + a * sin[i]));
      }
    }
  }
}

}  // namespace kv
