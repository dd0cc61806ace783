#include "checkpoint/scales/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace kv {
namespace {

bool all_one(const ScaleSet& set) {
  return std::ranges::all_of(set.scales, [](const StoredScale& scale) {
    return std::ranges::all_of(scale.values, [](float v) { return v == 1.0f; });
  });
}

// Presence is told apart from value: "1.0 from the checkpoint" is not "1.0 by default".
std::string summary_of(const ScaleSet& set) {
  if (set.scales.empty()) {
    return set.owner_layers.empty()
               ? "no KV scales"
               : fmt::format("none of {} layers has KV scales", set.owner_layers.size());
  }
  std::vector<int> without;
  for (const int layer : set.owner_layers) {
    const bool has_both =
        set.find(layer, ScaleSide::kK) != nullptr && set.find(layer, ScaleSide::kV) != nullptr;
    if (!has_both) without.push_back(layer);
  }
  std::string ones = all_one(set) ? ", value 1.0" : "";
  if (set.owner_layers.empty()) {
    std::set<int> layers;
    for (const StoredScale& scale : set.scales) layers.insert(scale.layer);
    return fmt::format("{} layers with scales{}; the number of layers is not known", layers.size(),
                       ones);
  }
  const size_t total = set.owner_layers.size();
  if (without.empty()) return fmt::format("all {} layers from checkpoint{}", total, ones);
  return fmt::format("{} of {} layers from checkpoint, layers {} default{}", total - without.size(),
                     total, fmt::join(without, ","), ones);
}

// A bias makes a few channels of K large and nearly constant, which E4M3's steps blur at any scale;
// a norm on K bounds it (both seen on real models, docs/findings.md).
RiskFlag risk_of(const ScaleSet& set) {
  constexpr double kHighRatio = 20;  // one channel this much above the median one
  const KeyRange* worst = nullptr;
  bool has_norm = false;
  for (const KeyRange& range : set.key_ranges) {
    has_norm = has_norm || range.k_norm_bound > 0;
    if (range.k_bias_max > 0 && (worst == nullptr || range.k_bias_max > worst->k_bias_max)) {
      worst = &range;
    }
  }
  if (worst != nullptr) {
    const double ratio =
        worst->k_bias_median > 0 ? worst->k_bias_max / worst->k_bias_median : worst->k_bias_max;
    const std::string text =
        fmt::format("layer {}: largest k_proj.bias {:.4g}, {:.4g} times the median channel{}",
                    worst->layer, worst->k_bias_max, ratio,
                    worst->k_bias_max > 448 ? "; beyond 448: K clips at scale 1.0" : "");
    return {ratio > kHighRatio ? "high" : "low", text};
  }
  if (has_norm) {
    double bound = 0;
    for (const KeyRange& range : set.key_ranges) bound = std::max(bound, range.k_norm_bound);
    return {"low", fmt::format("a norm on K keeps it below {:.4g}", bound)};
  }
  return {"unknown", "no bias and no norm on K: only a run tells"};
}

}  // namespace

std::string_view Diagnosis::health() const {
  Severity worst = Severity::kNote;
  for (const ScaleWarning& warning : warnings) worst = std::max(worst, warning.severity);
  if (worst == Severity::kBroken) return "broken";
  return worst == Severity::kDoubtful ? "doubtful" : "healthy";
}

std::string place_of(const StoredScale& scale) {
  return fmt::format("layer {} {}{}", scale.layer, name(scale.side),
                     scale.rank >= 0 ? fmt::format(" rank {}", scale.rank) : "");
}

Diagnosis diagnose(const ScaleSet& set) {
  Diagnosis out;
  out.summary = summary_of(set);
  out.risk = risk_of(set);
  check_values(set, out.warnings);
  check_origin(set, out.warnings);
  check_files(set, out.warnings);
  std::ranges::stable_sort(out.warnings, [](const ScaleWarning& a, const ScaleWarning& b) {
    return a.severity > b.severity;
  });
  return out;
}

}  // namespace kv
