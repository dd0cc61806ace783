#include "cpu/elementwise.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include <hwy/contrib/math/math-inl.h>

#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kv::HWY_NAMESPACE::StoreBf16;
using DF = hn::CappedTag<float, 16>;
using D1 = hn::CappedTag<float, 1>;

/// fn(tag, i) for whole vectors, then for single elements.
template <class Fn>
HWY_INLINE void ForEachVector(int64_t n, const Fn& fn) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) fn(d, i);
  for (; i < n; ++i) fn(D1(), i);
}

float SumOfSquares(const float* x, int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += x[i] * x[i];
  return total;
}

void RmsNormRow(const float* x, const float* weight, int64_t n, float eps, uint16_t* out) {
  const float factor = 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + eps);
  ForEachVector(n, [&](auto d, int64_t i) HWY_ATTR {
    StoreBf16(d,
              hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), hn::LoadU(d, weight + i)),
              out + i);
  });
}

void RmsNormRowInPlace(float* x, const float* weight, int64_t n, float eps) {
  const float factor = 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + eps);
  ForEachVector(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, x + i);
  });
}

void AddBiasRow(const float* x, const float* bias, int64_t n, uint16_t* out) {
  ForEachVector(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto b = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + i);
    StoreBf16(d, hn::Add(hn::LoadU(d, x + i), b), out + i);
  });
}

void RopeHead(const float* x, const float* bias, const float* cos, const float* sin, int64_t half,
              uint16_t* out) {
  ForEachVector(half, [&](auto d, int64_t i) HWY_ATTR {
    auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    if (bias != nullptr) {
      a = hn::Add(a, hn::LoadU(d, bias + i));
      b = hn::Add(b, hn::LoadU(d, bias + half + i));
    }
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    StoreBf16(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i);
    StoreBf16(d, hn::MulAdd(a, s, hn::Mul(b, c)), out + half + i);
  });
}

/// 1 / (1 + exp(-x)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  // Highway's Exp takes no more than 104, whose exponential is infinite in F32.
  const auto e = hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 104.0f)));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));
}

void SiluMulRow(const float* gate, const float* up, int64_t n, uint16_t* out) {
  ForEachVector(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + i);
    StoreBf16(d, hn::Mul(hn::Mul(g, Sigmoid(d, g)), hn::LoadU(d, up + i)), out + i);
  });
}

void GeluTanhMulRow(const float* gate, const float* up, int64_t n, uint16_t* out) {
  ForEachVector(n, [&](auto d, int64_t i) HWY_ATTR {
    // (1 + tanh(u)) / 2 = sigmoid(2 u), with 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
    const auto x = hn::LoadU(d, gate + i);
    const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.071354816f), hn::Set(d, 1.5957691f));
    const auto gelu = hn::Mul(x, Sigmoid(d, hn::Mul(x, cubic)));
    StoreBf16(d, hn::Mul(gelu, hn::LoadU(d, up + i)), out + i);
  });
}

void AddRow(const float* x, int64_t n, float* y) {
  ForEachVector(n, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(RmsNormRowInPlace);
HWY_EXPORT(AddBiasRow);
HWY_EXPORT(RopeHead);
HWY_EXPORT(SiluMulRow);
HWY_EXPORT(GeluTanhMulRow);
HWY_EXPORT(AddRow);

void rms_norm_row(const float* x, const float* weight, int64_t n, float eps, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, n, eps, out);
}

void rms_norm_row(float* x, const float* weight, int64_t n, float eps) {
  HWY_DYNAMIC_DISPATCH(RmsNormRowInPlace)(x, weight, n, eps);
}

void add_bias_row(const float* x, const float* bias, int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(AddBiasRow)(x, bias, n, out);
}

void rope_head(const float* x, const float* bias, const float* cos, const float* sin, int64_t half,
               uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(RopeHead)(x, bias, cos, sin, half, out);
}

void silu_mul_row(const float* gate, const float* up, int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(SiluMulRow)(gate, up, n, out);
}

void gelu_tanh_mul_row(const float* gate, const float* up, int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(GeluTanhMulRow)(gate, up, n, out);
}

void add_row(const float* x, int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(AddRow)(x, n, y); }

}  // namespace kv::cpu
#endif  // HWY_ONCE
