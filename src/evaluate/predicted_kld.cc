#include "evaluate/predicted_kld.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

namespace kv {
namespace {

// Share of the squared relative errors of all layers that the last hidden state still has, as if
// they went in random directions. Fitted; docs/prediction.md.
constexpr double kPassedOn = 0.19;

/// The record that says what an arm rounds of a layer: "kv", "k", "v", or "" for nothing.
std::string rounded_side(const ArmSpec& arm, int64_t layer) {
  const auto kept =
      std::ranges::find_if(arm.bf16, [&](const Bf16Side& side) { return side.layer == layer; });
  if (kept == arm.bf16.end()) return "kv";
  return kept->k && kept->v ? "" : kept->k ? "v" : "k";
}

}  // namespace

double curve_at(const CurveRecord& curve, double error) {
  if (curve.positions == 0 || curve.errors.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (!(error > 0)) return error;  // 0, and NaN stays visible
  if (error <= curve.errors.front()) return curve.klds.front() * error / curve.errors.front();
  if (error >= curve.errors.back()) return curve.klds.back();
  const auto above = std::ranges::upper_bound(curve.errors, error) - curve.errors.begin();
  const auto i = static_cast<size_t>(above);
  const double share =
      std::log(error / curve.errors[i - 1]) / std::log(curve.errors[i] / curve.errors[i - 1]);
  return curve.klds[i - 1] * std::pow(curve.klds[i] / curve.klds[i - 1], share);
}

double predicted_kld(std::span<const RangeRecord> ranges, const CurveRecord& curve,
                     const ArmSpec& arm) {
  std::set<int64_t> layers;
  std::map<int64_t, double> squares;
  for (const RangeRecord& range : ranges) {
    layers.insert(range.layer);
    if (range.layout != name(arm.layout) || range.side != rounded_side(arm, range.layer)) continue;
    squares[range.layer] = range.normed_damage * range.normed_damage;
  }
  if (arm.layout == ArmLayout::kBf16) return 0;
  double sum = 0;
  for (const int64_t layer : layers) {
    if (rounded_side(arm, layer).empty()) continue;
    const auto found = squares.find(layer);
    if (found == squares.end()) return std::numeric_limits<double>::quiet_NaN();
    sum += found->second;
  }
  return curve_at(curve, kPassedOn * sum);
}

}  // namespace kv
