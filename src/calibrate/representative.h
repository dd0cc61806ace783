#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/calibration.h"

namespace kv {

/// What the control's cache stored of one evaluated context: amax, [layer][side].
struct EvaluatedAmax {
  std::string bucket;
  std::vector<float> amax;
};

/// [layer][side] of [layer][side][head]: the largest of all heads.
std::vector<float> largest_of_heads(std::span<const float> amax, int64_t num_kv_heads);

/// How one layer and side does against its calibration.
struct Exceedance {
  int64_t layer = 0;
  Side side = Side::kK;
  int64_t calibrated = 0, evaluated = 0;  // examples
  int64_t exceeding = 0;                  // of the evaluated ones, beyond the calibrated amax
  float calibrated_amax = 0, evaluated_amax = 0;
  double p = 1, p_holm = 1;
  std::vector<std::string> buckets;  // where it happens, in order of first occurrence
};

/// Tests whether calibration and evaluation could have been drawn from one population: if they
/// were, the chance of k of m evaluated examples beyond the largest of n calibrated ones is
/// C(m, k) / C(n + m, k). One test per layer and side, Holm over all of them; smallest p first.
///
/// calibrated_amax  [layer][side], the largest of `calibrated` examples
/// Empty without evaluated examples. Throws ValueError when an amax has another size.
std::vector<Exceedance> test_exceedance(std::span<const float> calibrated_amax, int64_t calibrated,
                                        std::span<const EvaluatedAmax> evaluated);

/// "CAL_NOT_REPRESENTATIVE: 5 of 400 contexts exceed ..." of those below `alpha`, worst first;
/// empty when there are none.
std::string not_representative_text(std::span<const Exceedance> tests, double alpha);

}  // namespace kv
