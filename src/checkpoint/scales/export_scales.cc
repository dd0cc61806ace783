#include "checkpoint/scales/export_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"
#include "numeric/bf16.h"

namespace kv {
namespace {

void expect_symmetric(const ScaleSet& set) {
  for (const ScaleCompanion& companion : set.companions) {
    const bool is_bias = companion.kind == ScaleCompanion::Kind::kBias;
    if (!is_bias && companion.is_zero) continue;
    throw ValueError(fmt::format(
        "{}: {}: {} beside the scales: they mean nothing without it, and no engine applies it",
        companion.file, companion.tensor, is_bias ? "a mean" : "a zero point that is not zero"));
  }
}

const StoredScale& required(const ScaleSet& set, int layer, ScaleSide side) {
  const StoredScale* scale = set.find(layer, side);
  if (scale != nullptr) return *scale;
  throw ValueError(fmt::format("{}: layer {} side {}: expected a scale, found none",
                               set.path.string(), layer, name(side)));
}

void expect_numbers(const StoredScale& scale) {
  for (const float v : scale.values) {
    if (std::isnormal(v) && v > 0 && v <= kLargestScale) continue;
    throw ValueError(fmt::format(
        "{}: {}: layer {} side {}: expected finite scales > 0 and at most {:g}, found {}",
        scale.file, scale.tensor, scale.layer, name(scale.side), kLargestScale, v));
  }
}

std::vector<float> chosen(const ScaleSet& set, const StoredScale& scale,
                          const ScaleChoice& choice) {
  if (choice.per_head) {
    if (std::ssize(scale.values) == set.geometry.num_kv_heads) return scale.values;
    throw ValueError(fmt::format(
        "{}: {}: expected {} values, one per KV head, found {}: scales per head cannot be made of "
        "scales per tensor",
        scale.file, scale.tensor, set.geometry.num_kv_heads, scale.values.size()));
  }
  if (scale.values.size() == 1) return scale.values;
  if (!choice.reduce_max) {
    throw ValueError(fmt::format(
        "{}: {}: expected 1 value for a scale per tensor, found {}; --reduce max takes the largest",
        scale.file, scale.tensor, scale.values.size()));
  }
  return {*std::ranges::max_element(scale.values)};
}

float written(float value, const ScaleChoice& choice) {
  const float lifted = std::max(value, choice.min_scale);
  return choice.exact ? lifted : bf16::round_up(lifted);
}

void share(ExportedScale& k, ExportedScale& v) {
  for (size_t i = 0; i < k.used.size(); ++i) k.used[i] = v.used[i] = std::max(k.used[i], v.used[i]);
}

}  // namespace

std::vector<ExportedScale> scales_for_export(const ScaleSet& set, const ScaleChoice& choice) {
  expect_symmetric(set);
  if (set.owner_layers.empty()) {
    throw ValueError(fmt::format("{}: the number of layers is not known", set.path.string()));
  }
  std::vector<ExportedScale> out;
  for (const int layer : set.owner_layers) {
    for (const ScaleSide side : {ScaleSide::kK, ScaleSide::kV}) {
      const StoredScale& scale = required(set, layer, side);
      expect_numbers(scale);
      ExportedScale one{layer, side == ScaleSide::kK ? 'k' : 'v', chosen(set, scale, choice), {}};
      for (const float v : one.raw) one.used.push_back(written(v, choice));
      out.push_back(std::move(one));
    }
    if (choice.is_shared) share(out[out.size() - 2], out.back());
  }
  return out;
}

std::string k_stage_of(const ScaleSet& set) {
  if (set.record) return set.record->k_stage;
  if (!set.declared.k_post_rope) return "unknown";
  return *set.declared.k_post_rope ? "post_rope" : "pre_rope";
}

}  // namespace kv
