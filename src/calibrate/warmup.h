#pragma once

#include <string>
#include <vector>

#include "calibrate/calibration.h"

namespace kv {

/// What scales from the first requests alone do to one layer and side of all requests.
struct WarmupLoss {
  int64_t layer = 0;
  Side side = Side::kK;
  float warmup_amax = 0, amax = 0;
  int64_t values = 0, clipped = 0;  // under one warm-up scale for all heads

  /// How much larger amax becomes; 1 where nothing was missed.
  double amax_ratio() const;
};

/// Layers in order, K before V. `values`: of all requests.
std::vector<WarmupLoss> compare_warmup(const Calibration& warmup, const Calibration& all,
                                       const ValueObserver& values);

/// "scales of the first 2 of 8 requests: amax of all is larger on 5 of 12 layers' sides, most ...".
std::string warmup_text(const Calibration& warmup, const Calibration& all,
                        const std::vector<WarmupLoss>& losses);

}  // namespace kv
