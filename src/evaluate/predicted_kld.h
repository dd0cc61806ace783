#pragma once

#include <span>

#include "engine/arm.h"
#include "evaluate/record.h"

namespace kv {

/// The squared normed damage of what an arm rounds, summed over the layers, from one measuring pass
/// of the control (RangeMeter). A layer's is that of both sides, of K or V alone, or nothing. NaN
/// when a layer that the arm rounds has no record under its layout.
double arm_damage(std::span<const RangeRecord> ranges, const ArmSpec& arm);

/// The mean KLD that this pass expects of an arm, in nats:
///
///   KLD = D * ((1 - w) * (kSure + kUnsure * control_nll^2) + w * kLost),  w = D^2 / (D^2 +
///   kBend^2)
///
/// D: arm_damage. control_nll: nats per token that the control loses on the same text. It orders
/// work and decides nothing; docs/prediction.md has its error. NaN as arm_damage.
double predicted_kld(std::span<const RangeRecord> ranges, double control_nll, const ArmSpec& arm);

}  // namespace kv
