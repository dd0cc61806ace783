#include "calibrate/calibration.h"

#include <fmt/core.h>

#include <algorithm>

#include "kvscale/error.h"
#include "numeric/bf16.h"

namespace kv {
namespace {

float scale_of(float amax) { return amax > 0 ? bf16::round_up(amax / 448.0f) : 1.0f; }

}  // namespace

ScaleTable Calibration::scales(bool per_head) const {
  ScaleTable table(num_layers, num_kv_heads,
                   fmt::format("calibrated on {} ({} tokens)", source.prompts, source.tokens));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (const Side side : kSides) {
      float largest = 0;
      for (int64_t head = 0; head < num_kv_heads; ++head)
        largest = std::max(largest, at(layer, side, head));
      for (int64_t head = 0; head < num_kv_heads; ++head) {
        table.set(layer, side, head, scale_of(per_head ? at(layer, side, head) : largest));
      }
    }
  }
  return table;
}

Calibration finish_calibration(const AmaxObserver& observer, CalibrationSource source) {
  Calibration out;
  out.source = std::move(source);
  out.num_layers = observer.num_layers();
  out.num_kv_heads = observer.num_kv_heads();
  for (int64_t layer = 0; layer < out.num_layers; ++layer) {
    if (observer.tokens(layer) == 0)
      throw ValueError(fmt::format("calibration: layer {}: 0 values observed", layer));
    for (const Side side : kSides) {
      for (int64_t head = 0; head < out.num_kv_heads; ++head) {
        const AmaxObserver::Head& seen = observer.head(layer, side, head);
        if (seen.non_finite > 0) {
          throw ValueError(
              fmt::format("calibration: layer {} side {} head {}: {} values are not finite", layer,
                          name(side), head, seen.non_finite));
        }
        if (seen.amax == 0) {
          out.warnings.push_back(fmt::format("layer {} side {} head {}: amax 0 (dead), scale 1",
                                             layer, name(side), head));
        }
        out.amax.push_back(seen.amax);
      }
    }
  }
  return out;
}

void check_calibration(const Calibration& calibration, const std::string& model_sha256,
                       int64_t num_layers, int64_t num_kv_heads, const std::string& file) {
  const auto check = [&](const char* field, const auto& found, const auto& expected) {
    if (found != expected) {
      throw ValueError(
          fmt::format("{}: {}: expected {} (the model's), found {}", file, field, expected, found));
    }
  };
  check("layers", calibration.num_layers, num_layers);
  check("kv_heads", calibration.num_kv_heads, num_kv_heads);
  check("model_sha256", calibration.source.model_sha256, model_sha256);
}

}  // namespace kv
