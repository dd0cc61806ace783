#include "calibrate/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kvscale/error.h"

namespace kv {
namespace {

/// amax of a layer and side over all heads.
float largest_head(std::span<const float> amax, size_t layer_side, size_t heads) {
  return *std::ranges::max_element(amax.subspan(layer_side * heads, heads));
}

void add_amax(const std::vector<float>& more, std::vector<float>& amax) {
  for (size_t i = 0; i < amax.size(); ++i) amax[i] = std::max(amax[i], more[i]);
}

void warn_of_dead_heads(Calibration& c) {
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    for (const Side side : kSides) {
      for (int64_t head = 0; head < c.num_kv_heads; ++head) {
        if (c.at(layer, side, head) > 0) continue;
        c.warnings.push_back(fmt::format("layer {} side {} head {}: amax 0 (dead), scale 1", layer,
                                         name(side), head));
      }
    }
  }
}

/// "layer 2 side k by 3.1 % (4 to 4.125)", worst first.
void warn_of_growth(Calibration& c) {
  constexpr size_t kNamed = 6;
  if (c.source.examples < 2) {
    c.warnings.emplace_back(
        "NOT_CONVERGED: one example: whether more of them would raise amax cannot be told");
    return;
  }
  std::vector<std::pair<double, std::string>> grown;
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    for (const Side side : kSides) {
      const double half = c.half_amax[static_cast<size_t>(2 * layer + static_cast<int64_t>(side))];
      const double whole = c.tensor_amax(layer, side);
      if (whole <= half * (1 + kConvergedGrowth)) continue;
      const double growth = half > 0 ? whole / half - 1 : std::numeric_limits<double>::infinity();
      grown.emplace_back(growth, fmt::format("layer {} side {} by {:.1f} % ({:.4g} to {:.4g})",
                                             layer, name(side), 100 * growth, half, whole));
    }
  }
  if (grown.empty()) return;
  std::ranges::stable_sort(grown, std::greater(), [](const auto& one) { return one.first; });
  std::vector<std::string> shown;
  for (const auto& [growth, text] : grown) {
    if (shown.size() < kNamed) shown.push_back(text);
  }
  if (grown.size() > kNamed) shown.emplace_back("...");
  c.warnings.push_back(
      fmt::format("NOT_CONVERGED: from the first {} examples to all {} amax grew by more than "
                  "{:.4g} % in {} of "
                  "{} layers' sides: {}",
                  c.source.examples / 2, c.source.examples, 100 * kConvergedGrowth, grown.size(),
                  2 * c.num_layers, fmt::join(shown, ", ")));
}

/// A range that is 0 although something else was seen would silently become scale 1.
float range_of(const Estimator& estimator, const ValueHistogram& values, const std::string& where) {
  const float range = estimate_range(estimator, values);
  if (range > 0 || values.amax() == 0) return range;
  throw ValueError(
      fmt::format("calibration: {}: {} of |x| is 0 while the largest is {}: a higher percentile is "
                  "needed",
                  where, estimator.text(), values.amax()));
}

void add_ranges(const ValueObserver& values, Calibration& c) {
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    for (const Side side : kSides) {
      const std::string where = fmt::format("layer {} side {}", layer, name(side));
      c.tensor_ranges.push_back(range_of(c.estimator, values.tensor(layer, side), where));
      for (int64_t head = 0; head < c.num_kv_heads; ++head) {
        c.head_ranges.push_back(range_of(c.estimator, values.head(layer, side, head),
                                         fmt::format("{} head {}", where, head)));
      }
    }
  }
}

}  // namespace

float Calibration::tensor_amax(int64_t layer, Side side) const {
  return largest_head(amax, static_cast<size_t>(2 * layer + static_cast<int64_t>(side)),
                      static_cast<size_t>(num_kv_heads));
}

ScaleTable Calibration::scales(bool per_head) const {
  ScaleTable table(num_layers, num_kv_heads,
                   fmt::format("calibrated on {} ({} tokens)", source.prompts, source.tokens));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (const Side side : kSides) {
      const auto layer_side = static_cast<size_t>(2 * layer + static_cast<int64_t>(side));
      const float shared =
          tensor_ranges.empty() ? tensor_amax(layer, side) : tensor_ranges.at(layer_side);
      for (int64_t head = 0; head < num_kv_heads; ++head) {
        const size_t i = index(layer, side, head);
        const float own = head_ranges.empty() ? amax.at(i) : head_ranges.at(i);
        table.set(layer, side, head, scale_of_range(estimator, per_head ? own : shared));
      }
    }
  }
  return table;
}

int64_t length_bin(int64_t tokens) {
  int64_t bin = 16;
  while (bin < tokens) bin *= 2;
  return bin;
}

ExampleAmax read_example(const AmaxObserver& observer, const std::string& id) {
  for (int64_t layer = 0; layer < observer.num_layers(); ++layer) {
    if (observer.tokens(layer) == 0) {
      throw ValueError(
          fmt::format("calibration: example \"{}\": layer {}: 0 values observed", id, layer));
    }
    for (const Side side : kSides) {
      for (int64_t head = 0; head < observer.num_kv_heads(); ++head) {
        const int64_t bad = observer.head(layer, side, head).non_finite;
        if (bad == 0) continue;
        throw ValueError(fmt::format(
            "calibration: example \"{}\": layer {} side {} head {}: {} values are not finite", id,
            layer, name(side), head, bad));
      }
    }
  }
  return {observer.tokens(0), observer.amax()};
}

Calibration finish_calibration(int64_t num_layers, int64_t num_kv_heads,
                               std::span<const ExampleAmax> examples, const Estimator& estimator,
                               const ValueObserver* values, CalibrationSource source) {
  if (examples.empty()) throw ValueError("calibration: expected examples, found none");
  Calibration out;
  out.source = std::move(source);
  out.estimator = estimator;
  out.num_layers = num_layers;
  out.num_kv_heads = num_kv_heads;
  out.amax.resize(static_cast<size_t>(num_layers * 2 * num_kv_heads));
  out.half_amax.resize(static_cast<size_t>(num_layers * 2));
  out.source.examples = std::ssize(examples);
  out.source.tokens = out.source.max_tokens = 0;
  out.source.length_histogram.clear();
  for (size_t i = 0; i < examples.size(); ++i) {
    if (examples[i].amax.size() != out.amax.size()) {
      throw ValueError(fmt::format("calibration: example {}: expected {} amax values, found {}", i,
                                   out.amax.size(), examples[i].amax.size()));
    }
    add_amax(examples[i].amax, out.amax);
    out.source.tokens += examples[i].tokens;
    out.source.max_tokens = std::max(out.source.max_tokens, examples[i].tokens);
    ++out.source.length_histogram[length_bin(examples[i].tokens)];
    if (i + 1 != examples.size() / 2) continue;
    for (size_t side = 0; side < out.half_amax.size(); ++side) {
      out.half_amax[side] = largest_head(out.amax, side, static_cast<size_t>(num_kv_heads));
    }
  }
  if (estimator.needs_values()) {
    if (values == nullptr) {
      throw ValueError(fmt::format("calibration: {}: expected histograms of the values, found none",
                                   estimator.text()));
    }
    add_ranges(*values, out);
  }
  warn_of_dead_heads(out);
  warn_of_growth(out);
  return out;
}

}  // namespace kv
