#include "decide/flags.h"

#include <algorithm>

#include "decide/thresholds.h"

namespace kv {

LayerFlag flag_layer(double score_noise_mean) {
  // Written so that NaN, which only a broken layer gives, is broken.
  if (score_noise_mean < thresholds::kDoubtfulNoise) return LayerFlag::kHealthy;
  return score_noise_mean < thresholds::kBrokenNoise ? LayerFlag::kDoubtful : LayerFlag::kBroken;
}

std::vector<int> bf16_shortlist(std::span<const RangeRecord> ranges, int64_t num_layers) {
  std::vector<const RangeRecord*> broken, doubtful;
  for (const RangeRecord& range : ranges) {
    if (range.side != "k") continue;
    const LayerFlag flag = flag_layer(range.noise_mean);
    if (flag == LayerFlag::kBroken) broken.push_back(&range);
    if (flag == LayerFlag::kDoubtful) doubtful.push_back(&range);
  }
  std::vector<const RangeRecord*>& listed = broken.empty() ? doubtful : broken;
  std::ranges::stable_sort(listed, [](const RangeRecord* a, const RangeRecord* b) {
    return a->noise_mean > b->noise_mean;
  });
  std::vector<int> out;
  const auto most =
      static_cast<size_t>(static_cast<double>(num_layers) * thresholds::kBf16ShareMax);
  for (const RangeRecord* range : listed) {
    if (out.size() < most) out.push_back(static_cast<int>(range->layer));
  }
  return out;
}

}  // namespace kv
