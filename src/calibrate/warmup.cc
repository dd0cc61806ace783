#include "calibrate/warmup.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace kv {

double WarmupLoss::amax_ratio() const {
  if (amax == warmup_amax) return 1;
  return warmup_amax > 0 ? static_cast<double>(amax) / warmup_amax
                         : std::numeric_limits<double>::infinity();
}

std::vector<WarmupLoss> compare_warmup(const Calibration& warmup, const Calibration& all,
                                       const ValueObserver& values) {
  const ScaleTable scales = warmup.scales(false);
  std::vector<WarmupLoss> out;
  for (int64_t layer = 0; layer < all.num_layers; ++layer) {
    for (const Side side : kSides) {
      const ValueHistogram seen = values.tensor(layer, side);
      out.push_back({layer, side, warmup.tensor_amax(layer, side), all.tensor_amax(layer, side),
                     seen.count(), seen.count_above(448 * scales.heads(layer, side).front())});
    }
  }
  return out;
}

std::string warmup_text(const Calibration& warmup, const Calibration& all,
                        const std::vector<WarmupLoss>& losses) {
  const std::string first = fmt::format("scales of the first {} of {} requests",
                                        warmup.source.examples, all.source.examples);
  const WarmupLoss& worst = *std::ranges::max_element(losses, {}, &WarmupLoss::amax_ratio);
  if (worst.amax_ratio() <= 1) return first + ": the others raise no amax";
  int64_t values = 0, clipped = 0;
  for (const WarmupLoss& one : losses) {
    values += one.values;
    clipped += one.clipped;
  }
  const auto raised =
      std::ranges::count_if(losses, [](const WarmupLoss& one) { return one.amax_ratio() > 1; });
  return fmt::format(
      "{}: all of them raise amax on {} of {} layers' sides, most on layer {} side {} ({:.4g} to "
      "{:.4g}, {:.3g} times); {} of {} values clip under one scale per layer",
      first, raised, losses.size(), worst.layer, name(worst.side), worst.warmup_amax, worst.amax,
      worst.amax_ratio(), clipped, values);
}

}  // namespace kv
