#include "evaluate/token_magnitudes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "numeric/bf16.h"
#include "stats/distributions.h"
#include "stats/moments.h"

namespace kv {

void TokenMagnitudes::add(int64_t sequence, int64_t first_position,
                          const std::vector<float>& largest) {
  Sums& sums = open_[sequence];
  auto position = static_cast<double>(first_position);
  for (const float value : largest) {
    all_.push_back(bf16::encode(value));
    position += 1;
    if (!(value > 0) || !std::isfinite(value)) continue;
    const double x = std::log2(position), y = std::log2(static_cast<double>(value));
    sums.n += 1;
    sums.x += x;
    sums.y += y;
    sums.xx += x * x;
    sums.xy += x * y;
  }
}

bool TokenMagnitudes::Sums::has_slope() const {
  // Two positions make a line; rounding must not make one of a single position.
  return n >= 3 && xx - x * x / n > 1e-9 * xx;
}

double TokenMagnitudes::Sums::slope() const { return (xy - x * y / n) / (xx - x * x / n); }

void TokenMagnitudes::end_sequence(int64_t sequence) {
  const auto found = open_.find(sequence);
  if (found == open_.end()) return;
  if (found->second.has_slope()) finished_.push_back(found->second.slope());
  open_.erase(found);
}

double TokenMagnitudes::spread() const {
  std::vector<double> values;
  values.reserve(all_.size());
  for (const uint16_t code : all_) {
    const double value = bf16::decode(code);
    if (std::isfinite(value)) values.push_back(value);
  }
  if (values.empty()) return 1;
  const std::array<double, 2> kAt = {0.5, 0.99};
  const std::vector<double> found = percentiles(std::move(values), kAt);
  if (found[1] == 0) return 1;
  return found[0] == 0 ? std::numeric_limits<double>::infinity() : found[1] / found[0];
}

PositionSlope TokenMagnitudes::slope() const {
  std::vector<double> slopes = finished_;
  for (const auto& [sequence, sums] : open_) {
    if (sums.has_slope()) slopes.push_back(sums.slope());
  }
  if (slopes.empty()) return {};
  if (slopes.size() == 1) return {slopes.front(), 1};
  const MeanEstimate mean = mean_estimate(slopes);
  if (mean.se == 0) return {mean.mean, mean.mean > 0 ? 0.0 : 1.0};
  return {mean.mean, student_t_upper(mean.mean / mean.se, static_cast<double>(mean.n) - 1)};
}

}  // namespace kv
