#pragma once

#include <span>

#include "engine/arm.h"
#include "evaluate/record.h"

namespace kv {

/// The mean KLD that one measuring pass of the control (RangeMeter) expects of an arm, in nats.
///
///   KLD = curve(kPassedOn * sum over layers of normed_damage^2)
///
/// A layer's damage is that of what the arm rounds there: both sides, K or V alone, nothing. It
/// orders work and sizes samples; docs/prediction.md has its error. NaN without a curve, and when a
/// layer that the arm rounds has no record under its layout.
double predicted_kld(std::span<const RangeRecord> ranges, const CurveRecord& curve,
                     const ArmSpec& arm);

/// The curve between its points: a power of the error from one to the next, below the first in
/// proportion to it, beyond the last as at the last.
double curve_at(const CurveRecord& curve, double error);

}  // namespace kv
