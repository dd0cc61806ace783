#pragma once

#include <vector>

#include "decide/options.h"
#include "decide/verdict.h"
#include "evaluate/record.h"

namespace kv {

/// What of a pass of the control speaks for a scale per token (TOKEN_DRIFT, method 6.4): one reason
/// for each signal that shows, about the layer, side and head where it is strongest.
///
///   clipping   values beyond the calibrated range in more than token_clip_frac
///   slope      magnitudes grow with the position: by more than token_slope (log2 per doubling), p
///              below token_drift_p after Holm over all layers, sides and heads
///   spread     99th percentile of a head's magnitudes per token at least token_spread times the
///              median
///   channel    one channel carries more than channel_share of a key head's energy
///
/// The exceedance test (8.4), the fifth signal, is calibration_set.h's.
std::vector<Reason> find_token_drift(const DecideOptions& options,
                                     const std::vector<RangeRecord>& ranges);

}  // namespace kv
