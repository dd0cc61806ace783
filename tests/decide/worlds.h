#pragma once

#include <algorithm>

#include "tests/decide/simulated_study.h"

/// Planted models: for each the right verdict is known (method 9.1).
namespace kv::test {

inline bool keeps(const ArmSpec& arm, int layer) {
  return std::ranges::any_of(arm.bf16, [&](const Bf16Side& s) { return s.layer == layer && s.k; });
}

/// A world in which an arm loses a third of its answers, and its KLD is a nat, if `breaks` says so.
inline World broken_world(std::function<bool(const ArmSpec&)> breaks) {
  World world;
  world.rates = [breaks](const ArmSpec& arm, const std::string&) {
    return breaks(arm) ? Rates{0.3, 0.005} : Rates{0.002, 0.002};
  };
  world.kld = [breaks](const ArmSpec& arm) { return breaks(arm) ? 1.0 : 0.01; };
  return world;
}

/// K of every layer beyond 448: scale 1.0 clips, every calibrated layout restores.
inline World clipping_world() {
  return broken_world([](const ArmSpec& arm) { return arm.layout == ArmLayout::kFp8Scale1; });
}

/// One head starves under the layer's scale.
inline World head_dispersion_world() {
  World world = broken_world([](const ArmSpec& arm) {
    return arm.layout == ArmLayout::kFp8Scale1 || arm.layout == ArmLayout::kFp8Tensor;
  });
  world.ranges = [](const ArmSpec& arm, RangeRecord& range) {
    if (range.layer != 3 || range.side != "k") return;
    if (arm.layout == ArmLayout::kFp8Tensor) range.sqnr_db_heads[1] = 8.6;
  };
  return world;
}

/// Keys grow beyond what calibration saw: only a scale per token follows. In all layers, so that no
/// few of them help.
inline World token_dispersion_world() {
  World world = broken_world([](const ArmSpec& arm) {
    return arm.layout != ArmLayout::kFp8TokenHead && arm.bf16.size() < 5;
  });
  world.ranges = [](const ArmSpec& arm, RangeRecord& range) {
    if (arm.needs_scales() && range.side == "k") {
      range.clip_frac = 0.01;
      range.clip_frac_heads = {0.01, 0.01};
    }
  };
  return world;
}

/// A constant offset on the keys of one layer (or of all, for -1): no scale helps.
inline World offset_world(int layer) {
  World world =
      broken_world([layer](const ArmSpec& arm) { return layer < 0 ? true : !keeps(arm, layer); });
  world.ranges = [layer](const ArmSpec&, RangeRecord& range) {
    if (range.side != "k" || (layer >= 0 && range.layer != layer)) return;
    range.noise_mean = 2 - 0.01 * static_cast<double>(range.layer);
    range.centred_sqnr_db = -2;
  };
  return world;
}

/// Every arm loses a little everywhere and nothing stands out.
inline World diffuse_world() {
  return broken_world([](const ArmSpec&) { return true; });
}

}  // namespace kv::test
