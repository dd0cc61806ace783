// Attention weights rounded to E4M3, for the attention kernels: include after hwy/foreach_target.h
// and call from within HWY_NAMESPACE.

#if defined(KV_CPU_ROUND_WEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CPU_ROUND_WEIGHT_INL_H_
#undef KV_CPU_ROUND_WEIGHT_INL_H_
#else
#define KV_CPU_ROUND_WEIGHT_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The weight 0 <= p <= 1 that comes out of E4M3 when it goes in times 2^8 (FlashAttention-3's
/// offset, which keeps 8 more binades of small weights): nearest, ties to even; NaN stays NaN. The
/// result is exact in BF16.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundWeight(D d, V p) {
  const hn::RebindToUnsigned<D> du;
  constexpr float kLeastNormal = 0x1p-6f;
  const V offset = hn::Mul(p, hn::Set(d, 256.0f));
  // Normal values keep 3 bits after the leading one: half of the last kept bit, less one where it
  // is even, carries into it.
  const auto bits = hn::BitCast(du, offset);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1u));
  const auto carried = hn::Add(bits, hn::Add(hn::Set(du, 0x7ffffu), odd));
  const V normal = hn::BitCast(d, hn::And(carried, hn::Set(du, 0xfff00000u)));
  // Below, values are multiples of 2^-9, which is what F32 has at 2^14.
  const V shift = hn::Set(d, 0x1p14f);
  const V subnormal = hn::Sub(hn::Add(offset, shift), shift);
  const V rounded = hn::IfThenElse(hn::Lt(offset, hn::Set(d, kLeastNormal)), subnormal, normal);
  return hn::Mul(rounded, hn::Set(d, 0x1p-8f));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target
