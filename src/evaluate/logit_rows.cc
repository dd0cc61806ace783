#include "evaluate/logit_rows.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "evaluate/logit_rows.cc"
#include "hwy/foreach_target.h"
// highway.h and what builds on it must follow foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kv::logit_rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using DD = hn::ScalableTag<double>;
// As many floats as there are doubles in a vector.
using DH = hn::Rebind<float, DD>;

double sum_of(hn::Vec<DD> v) { return hn::GetLane(hn::SumOfLanes(DD(), v)); }

HWY_INLINE hn::Vec<DD> load(const float* x) { return hn::PromoteTo(DD(), hn::LoadU(DH(), x)); }

Largest find_largest(const float* logits, int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, FLT_MAX);
  auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto is_finite = hn::Eq(limit, limit);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, logits + i);
    best = hn::Max(best, x);
    is_finite = hn::And(is_finite, hn::Le(hn::Abs(x), limit));
  }
  Largest out{hn::GetLane(hn::MaxOfLanes(d, best)), hn::AllTrue(d, is_finite)};
  for (; i < n; ++i) {
    out.value = std::max(out.value, logits[i]);
    out.finite = out.finite && std::isfinite(logits[i]);
  }
  return out;
}

int64_t find_first(const float* logits, int64_t n, float value) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, logits + i), wanted))) break;
  }
  while (i < n && logits[i] != value) ++i;
  return i;
}

/// Calls body(i) for whole vectors of doubles at i and tail(i) for what is left over.
template <class Body, class Tail>
HWY_INLINE void for_each_vector(int64_t n, Body body, Tail tail) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DD()));
  int64_t i = 0;
  // Two vectors a step: Exp is a long chain of dependent operations.
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    body(i, 0);
    body(i + lanes, 1);
  }
  for (; i < n; ++i) tail(i);
}

Weights make_exponentials(const float* HWY_RESTRICT logits, int64_t n, float shift,
                          double* HWY_RESTRICT weights) {
  const DD d;
  const auto shifts = hn::Set(d, static_cast<double>(shift));
  hn::Vec<DD> sum[2] = {hn::Zero(d), hn::Zero(d)};
  hn::Vec<DD> squares[2] = {hn::Zero(d), hn::Zero(d)};
  Weights rest;
  for_each_vector(
      n,
      [&](int64_t i, int slot) HWY_ATTR {
        const auto w = hn::Exp(d, hn::Sub(load(logits + i), shifts));
        hn::StoreU(w, d, weights + i);
        sum[slot] = hn::Add(sum[slot], w);
        squares[slot] = hn::MulAdd(w, w, squares[slot]);
      },
      [&](int64_t i) {
        weights[i] = std::exp(static_cast<double>(logits[i]) - static_cast<double>(shift));
        rest.sum += weights[i];
        rest.sum_squares += weights[i] * weights[i];
      });
  return {rest.sum + sum_of(hn::Add(sum[0], sum[1])),
          rest.sum_squares + sum_of(hn::Add(squares[0], squares[1]))};
}

Contrast make_contrast(const double* HWY_RESTRICT weights, const float* HWY_RESTRICT control,
                       const float* HWY_RESTRICT candidate, int64_t n, float shift) {
  const DD d;
  const auto shifts = hn::Set(d, static_cast<double>(shift));
  hn::Vec<DD> sum[2] = {hn::Zero(d), hn::Zero(d)};
  hn::Vec<DD> difference[2] = {hn::Zero(d), hn::Zero(d)};
  hn::Vec<DD> product[2] = {hn::Zero(d), hn::Zero(d)};
  Contrast rest;
  for_each_vector(
      n,
      [&](int64_t i, int slot) HWY_ATTR {
        const auto w = hn::LoadU(d, weights + i);
        const auto x = load(candidate + i);
        const auto e = hn::Exp(d, hn::Sub(x, shifts));
        sum[slot] = hn::Add(sum[slot], e);
        difference[slot] = hn::MulAdd(w, hn::Sub(load(control + i), x), difference[slot]);
        product[slot] = hn::MulAdd(w, e, product[slot]);
      },
      [&](int64_t i) {
        const double x = candidate[i];
        const double e = std::exp(x - static_cast<double>(shift));
        rest.sum += e;
        rest.difference += weights[i] * (static_cast<double>(control[i]) - x);
        rest.product += weights[i] * e;
      });
  return {rest.sum + sum_of(hn::Add(sum[0], sum[1])),
          rest.difference + sum_of(hn::Add(difference[0], difference[1])),
          rest.product + sum_of(hn::Add(product[0], product[1]))};
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::logit_rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::logit_rows {

HWY_EXPORT(find_largest);
HWY_EXPORT(find_first);
HWY_EXPORT(make_exponentials);
HWY_EXPORT(make_contrast);

Largest largest(const float* logits, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(find_largest)(logits, n);
}

int64_t first_index(const float* logits, int64_t n, float value) {
  return HWY_DYNAMIC_DISPATCH(find_first)(logits, n, value);
}

Weights exponentials(const float* logits, int64_t n, float shift, double* weights) {
  return HWY_DYNAMIC_DISPATCH(make_exponentials)(logits, n, shift, weights);
}

Contrast contrast(const double* weights, const float* control, const float* candidate, int64_t n,
                  float shift) {
  return HWY_DYNAMIC_DISPATCH(make_contrast)(weights, control, candidate, n, shift);
}

}  // namespace kv::logit_rows
#endif  // HWY_ONCE
