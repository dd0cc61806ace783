#include "evaluate/predicted_kld.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

namespace kv {
namespace {

// Fitted on five models, plain and planted; docs/prediction.md.
constexpr double kSure = 0.57;     // of a control that the text leaves in no doubt
constexpr double kUnsure = 0.144;  // per squared nat of its NLL
constexpr double kLost = 2.7;      // where nothing of the control is left, whatever the text
constexpr double kBend = 0.38;     // damage, squared and summed, at which half of it is

/// The record that says what an arm rounds of a layer: "kv", "k", "v", or "" for nothing.
std::string rounded_side(const ArmSpec& arm, int64_t layer) {
  const auto kept =
      std::ranges::find_if(arm.bf16, [&](const Bf16Side& side) { return side.layer == layer; });
  if (kept == arm.bf16.end()) return "kv";
  return kept->k && kept->v ? "" : kept->k ? "v" : "k";
}

}  // namespace

double arm_damage(std::span<const RangeRecord> ranges, const ArmSpec& arm) {
  if (arm.layout == ArmLayout::kBf16) return 0;
  std::set<int64_t> layers;
  std::map<int64_t, double> squares;
  for (const RangeRecord& range : ranges) {
    layers.insert(range.layer);
    if (range.layout != name(arm.layout) || range.side != rounded_side(arm, range.layer)) continue;
    squares[range.layer] = range.normed_damage * range.normed_damage;
  }
  double sum = layers.empty() ? std::numeric_limits<double>::quiet_NaN() : 0;
  for (const int64_t layer : layers) {
    if (rounded_side(arm, layer).empty()) continue;
    const auto found = squares.find(layer);
    if (found == squares.end()) return std::numeric_limits<double>::quiet_NaN();
    sum += found->second;
  }
  return sum;
}

double predicted_kld(std::span<const RangeRecord> ranges, double control_nll, const ArmSpec& arm) {
  const double damage = arm_damage(ranges, arm);
  const double lost = damage * damage / (damage * damage + kBend * kBend);
  return damage * ((1 - lost) * (kSure + kUnsure * control_nll * control_nll) + lost * kLost);
}

}  // namespace kv
