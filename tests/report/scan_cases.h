#pragma once

#include <array>
#include <string>
#include <vector>

#include "report/scan_report.h"

namespace kv {

/// Score noise (mean, worst head) of one layer under scale 1.0, per tensor, per head, per token and
/// head, in this order everywhere here.
using PerLayout = std::array<double, 4>;

struct LayerCase {
  PerLayout noise, worst;
  double sqnr_db = 31.5, centred_sqnr_db = 27;
  PerLayout damage_squared = {};
  double clip_frac = 0;  // of the keys under scale 1.0
};

/// Adds the three range records of each layout.
void add_layer(ScanReport& report, const LayerCase& layer);

/// Adds an arm; `kld_se` 0 where it was not measured.
void add_arm(ScanReport& report, const std::string& arm, double nll, double kld, double same_top,
             double kld_se = 0);

/// Three real models as measured with FP8 caches emulated in another framework: harmless, broken by
/// an offset in the keys of layer 0, and between.
ScanReport smollm2_scan();
ScanReport qwen_1_5b_scan();
ScanReport qwen_0_5b_scan();

/// Two layers, everything small: for snapshots.
ScanReport small_scan();

}  // namespace kv
