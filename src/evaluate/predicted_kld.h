#pragma once

#include <span>

#include "engine/arm.h"
#include "evaluate/record.h"

namespace kv {

/// The mean KLD that one measuring pass of the control (RangeMeter) expects of an arm, in nats.
///
///   KLD = kPassedOn * entropy^2 * sum over layers of normed_damage^2
///
/// A layer's damage is that of what the arm rounds there: both sides, K or V alone, nothing. It
/// orders work; docs/prediction.md has its error. NaN without an entropy, and when a layer that the
/// arm rounds has no record under its layout.
double predicted_kld(std::span<const RangeRecord> ranges, const EntropyRecord& entropy,
                     const ArmSpec& arm);

}  // namespace kv
