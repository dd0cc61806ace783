// Findings about the numbers themselves.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/scales/diagnose.h"

namespace kv {
namespace {

using Warnings = std::vector<ScaleWarning>;

constexpr double kOutlierFactor = 1e3;

bool is_usable(float v) { return std::isnormal(v) && v > 0; }

bool is_kv(const StoredScale& scale) {
  return scale.side == ScaleSide::kK || scale.side == ScaleSide::kV;
}

std::string head_text(const StoredScale& scale, size_t i) {
  return scale.values.size() > 1 ? fmt::format(" head {}", i) : "";
}

void check_numbers(const ScaleSet& set, Warnings& out) {
  for (const StoredScale& scale : set.scales) {
    for (size_t i = 0; i < scale.values.size(); ++i) {
      if (is_usable(scale.values[i])) continue;
      out.push_back(
          {"zero", place_of(scale) + head_text(scale, i),
           fmt::format(
               "{} in {} ({}): expected a finite scale > 0; the layer was never observed or "
               "saw only zeros. vLLM's compressed-tensors path uses it unchecked, other "
               "paths put 1.0 or the other side's scale in its place",
               scale.values[i], scale.tensor, scale.file),
           Severity::kBroken});
      break;  // one finding per tensor
    }
  }
}

double median_of_side(const ScaleSet& set, ScaleSide side) {
  std::vector<double> values;
  for (const StoredScale& scale : set.scales) {
    if (scale.side != side) continue;
    for (const float v : scale.values) {
      if (is_usable(v)) values.push_back(v);
    }
  }
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void check_outliers(const ScaleSet& set, Warnings& out) {
  for (const ScaleSide side : {ScaleSide::kK, ScaleSide::kV, ScaleSide::kQ}) {
    const double median = median_of_side(set, side);
    for (const StoredScale& scale : set.scales) {
      if (scale.side != side) continue;
      const auto is_far = [&](float v) {
        return is_usable(v) &&
               (v > kLargestScale || v > median * kOutlierFactor || v < median / kOutlierFactor);
      };
      const auto found = std::ranges::find_if(scale.values, is_far);
      if (found == scale.values.end()) continue;
      out.push_back({"outlier-scale", place_of(scale),
                     fmt::format("{:.4g}, the median of its side is {:.4g}: an unobserved layer is "
                                 "saved with whatever was in memory",
                                 *found, median),
                     Severity::kBroken});
    }
  }
}

// 0 amax becomes the dtype's eps in compressed-tensors.
void check_eps(const ScaleSet& set, Warnings& out) {
  if (set.declared.family != ScaleFamily::kCompressedTensors) return;
  const std::map<std::string, float> eps = {
      {"BF16", 0x1p-7f}, {"F16", 0x1p-10f}, {"F32", 0x1p-23f}};
  for (const StoredScale& scale : set.scales) {
    const auto known = eps.find(scale.dtype);
    if (known == eps.end() || !is_kv(scale)) continue;
    if (std::ranges::find(scale.values, known->second) == scale.values.end()) continue;
    out.push_back(
        {"eps", place_of(scale),
         fmt::format("{} is what compressed-tensors writes for {} when the layer saw only "
                     "zeros",
                     known->second, scale.dtype),
         Severity::kDoubtful});
  }
}

void check_ones(const ScaleSet& set, Warnings& out) {
  float least = INFINITY, most = 0;
  for (const StoredScale& scale : set.scales) {
    if (!is_kv(scale)) continue;
    for (const float v : scale.values) {
      least = std::min(least, v);
      most = std::max(most, v);
    }
  }
  if (least != 1.0f) return;
  if (most == 1.0f) {
    out.push_back({"all-ones", "every layer",
                   "every scale is exactly 1.0: not calibrated, a _cast preset, or clamped by "
                   "ModelOpt up to 0.42",
                   Severity::kDoubtful});
  } else {
    out.push_back(
        {"clamped", "every layer",
         "the smallest scale is exactly 1.0 and others are above: clamped to at least 1 "
         "(ModelOpt up to 0.42, its Megatron and TensorRT-LLM exports); small values lose "
         "precision",
         Severity::kDoubtful});
  }
}

void check_shapes(const ScaleSet& set, Warnings& out) {
  const KvGeometry& geometry = set.geometry;
  if (geometry.num_kv_heads == 0) return;
  for (const StoredScale& scale : set.scales) {
    const ScaleShape shape = scale_shape(scale, geometry);
    if (scale.side == ScaleSide::kQ && shape != ScaleShape::kOther) continue;
    const std::string where = place_of(scale);
    if (is_kv(scale) && shape == ScaleShape::kPerQHead) {
      out.push_back({"per-query-head", where,
                     fmt::format("{}: expected 1 or {} values (num_kv_heads), found {}, which is "
                                 "num_attention_heads: one scale per query head is not supported",
                                 scale.tensor, geometry.num_kv_heads, scale.values.size()),
                     Severity::kBroken});
    } else if (shape == ScaleShape::kOther) {
      out.push_back({"wrong-shape", where,
                     fmt::format("{}: expected 1 or {} values (num_kv_heads), found {}",
                                 scale.tensor, geometry.num_kv_heads, scale.values.size()),
                     Severity::kBroken});
    } else if (is_kv(scale) && shape == ScaleShape::kPerKvHead && geometry.num_kv_heads > 1) {
      const bool says_tensor = set.declared.strategy == "tensor";
      if (!says_tensor) continue;
      out.push_back({"wrong-shape", where,
                     fmt::format("{}: expected 1 value, since kv_cache_scheme.strategy is "
                                 "\"tensor\", found {}",
                                 scale.tensor, scale.values.size()),
                     Severity::kBroken});
    }
  }
}

// Newer TensorRT-LLM checkpoints hold the larger scale of K and V beside the two, for releases that
// know one only.
bool is_larger_of_both(const ScaleSet& set, const StoredScale& own, const StoredScale& shared) {
  return set.declared.family == ScaleFamily::kTensorRtLlm && shared.is_shared && !own.is_shared &&
         own.values.size() == 1 && shared.values.size() == 1 && own.values[0] <= shared.values[0];
}

// Two spellings for one layer and side: engines map both to one parameter, the later one wins.
void check_conflicts(const ScaleSet& set, Warnings& out) {
  for (size_t i = 1; i < set.scales.size(); ++i) {
    const StoredScale& a = set.scales[i - 1];
    const StoredScale& b = set.scales[i];
    if (a.layer != b.layer || a.side != b.side || a.rank != b.rank) continue;
    if (is_larger_of_both(set, a, b)) continue;
    const bool differ = a.values != b.values;
    out.push_back({"conflict", place_of(b),
                   fmt::format("{} ({}) and {} ({}) {}", a.tensor, a.file, b.tensor, b.file,
                               differ ? "differ: which one counts depends on the engine and on the "
                                        "order of files"
                                      : "say the same"),
                   differ ? Severity::kBroken : Severity::kNote});
  }
}

void check_shared(const ScaleSet& set, Warnings& out) {
  if (set.scales.empty()) return;
  bool is_shared = false, is_equal = true, has_other = false;
  for (const StoredScale& scale : set.scales) {
    if (scale.side == ScaleSide::kK) {
      const StoredScale* v = set.find(scale.layer, ScaleSide::kV, std::max(scale.rank, 0));
      is_equal = is_equal && v != nullptr && v->values == scale.values;
    }
    is_shared = is_shared || scale.is_shared;
    has_other = has_other || std::ranges::any_of(scale.values, [](float v) { return v != 1.0f; });
  }
  if (!has_other || (!is_shared && !is_equal)) return;
  out.push_back({"k-only", "every layer",
                 is_shared ? "one number per layer serves K and V: the smaller side loses precision"
                           : "K and V have the same scale everywhere: one shared number",
                 Severity::kDoubtful});
}

void check_norm_bound(const ScaleSet& set, Warnings& out) {
  constexpr double kSlack = 1.02;  // rounding of the scale up to BF16, and of the norm's weights
  for (const KeyRange& range : set.key_ranges) {
    const StoredScale* scale = set.find(range.layer, ScaleSide::kK);
    if (range.k_norm_bound <= 0 || scale == nullptr) continue;
    const double amax = 448.0 * *std::ranges::max_element(scale->values);
    if (scale->values == std::vector<float>{1.0f} || !(amax > range.k_norm_bound * kSlack))
      continue;
    out.push_back(
        {"k-norm-limit", place_of(*scale),
         fmt::format("says that keys reach {:.4g}, the model's norm on K keeps them below "
                     "{:.4g}: not the scales of this model, or not of its cache",
                     amax, range.k_norm_bound),
         Severity::kDoubtful});
  }
}

}  // namespace

void check_values(const ScaleSet& set, Warnings& out) {
  check_numbers(set, out);
  check_outliers(set, out);
  check_eps(set, out);
  check_ones(set, out);
  check_shapes(set, out);
  check_conflicts(set, out);
  check_shared(set, out);
  check_norm_bound(set, out);
}

}  // namespace kv
