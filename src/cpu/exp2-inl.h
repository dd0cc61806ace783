// 2^x of a vector, for kernels of any room: include after hwy/foreach_target.h and call from within
// HWY_NAMESPACE.

#if defined(KV_CPU_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CPU_EXP2_INL_H_
#undef KV_CPU_EXP2_INL_H_
#else
#define KV_CPU_EXP2_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// 2^x for x <= 0 to within 1.7e-7 of the value (2 ulp); 1 at 0; a value under 2^-126 may come out
/// as 0, and does for x <= -160; NaN stays NaN.
///
/// x = n + f with |f| <= 1/2; 2^f is 1 + f * (polynomial of degree 4), fitted for the least largest
/// relative error (9.1e-8 before rounding).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
#if HWY_TARGET <= HWY_AVX3
  x = V{_mm512_max_ps(_mm512_set1_ps(-160.0f), x.raw)};  // of a NaN and a number, the second
#else
  const auto least = hn::Set(d, -127.0f);
  x = hn::IfThenElse(hn::Lt(x, least), least, x);
#endif
  const auto n = hn::Round(x);
  const auto f = hn::Sub(x, n);
  auto p = hn::Set(d, 0.0013264727f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671513f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.055507336f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.693147f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
#if HWY_TARGET <= HWY_AVX3
  return V{_mm512_scalef_ps(p.raw, n.raw)};
#else
  // The bits of 2^n; those of 0 for n = -127.
  const hn::RebindToSigned<D> di;
  const auto bits = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(d, bits));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
