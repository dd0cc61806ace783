#pragma once

#include <cstdint>

namespace kv::cpu {

/// Highway kernels behind the elementwise ops; each works on one row, sums in a fixed order per
/// target.

/// out[i] = bf16(x[i] * rsqrt(mean(x^2) + eps) * weight[i])
void rms_norm_row(const float* x, const float* weight, int64_t n, float eps, uint16_t* out);

/// x[i] = x[i] * rsqrt(mean(x^2) + eps) * weight[i]
void rms_norm_row(float* x, const float* weight, int64_t n, float eps);

/// out[i] = bf16(x[i] + bias[i]); bias may be null
void add_bias_row(const float* x, const float* bias, int64_t n, uint16_t* out);

/// Half-split rotation of one head of 2 * half values: pairs (i, i + half), plus bias (may be null)
/// before it.
void rope_head(const float* x, const float* bias, const float* cos, const float* sin, int64_t half,
               uint16_t* out);

/// out[i] = bf16(gate[i] / (1 + exp(-gate[i])) * up[i])
void silu_mul_row(const float* gate, const float* up, int64_t n, uint16_t* out);

/// out[i] = bf16(gelu(gate[i]) * up[i]), gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715
/// x^3)))
void gelu_tanh_mul_row(const float* gate, const float* up, int64_t n, uint16_t* out);

/// y[i] += x[i]
void add_row(const float* x, int64_t n, float* y);

}  // namespace kv::cpu
