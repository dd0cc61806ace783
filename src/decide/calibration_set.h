#pragma once

#include <string>
#include <vector>

#include "calibrate/representative.h"
#include "evaluate/record.h"

namespace kv {

using AmaxRecords = std::vector<const AmaxRecord*>;

/// How the calibration examples differ from the evaluated contexts, in one sentence; empty when
/// they have their lengths, tasks and languages: total variation of each at most
/// kCalibrationTv, or every share met to the nearest whole example; Kolmogorov-Smirnov on log2 of
/// the lengths below its critical value. (Method 8.2) Calibration examples of tasks or
/// buckets that are not evaluated are beside the evaluation and do not count. Empty too when either
/// side has none.
std::string calibration_mismatch(const AmaxRecords& calibrated, const AmaxRecords& evaluated);

/// The exceedance test (method 8.4) of evaluated contexts against calibration examples. Empty when
/// either side has none.
std::vector<Exceedance> test_calibration(const AmaxRecords& calibrated,
                                         const AmaxRecords& evaluated);

}  // namespace kv
