#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kv {
namespace {

// Indices of the `count` largest; NaN counts as the largest, so that it shows in the weights.
std::vector<size_t> largest(std::span<const float> scores, int64_t count) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) { return std::isnan(scores[i]) ? INFINITY : scores[i]; };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return key(a) > key(b); });
  order.resize(static_cast<size_t>(count));
  return order;
}

/// The scores with -infinity for experts of groups that are not chosen; NaN stays.
std::vector<float> of_best_groups(std::span<const float> scores, const ExpertGroups& groups) {
  std::vector<float> out(scores.begin(), scores.end());
  if (groups.groups == 0) return out;
  const size_t each = scores.size() / static_cast<size_t>(groups.groups);
  std::vector<float> best;
  for (size_t first = 0; first < scores.size(); first += each)
    best.push_back(scores[first + largest(scores.subspan(first, each), 1)[0]]);
  std::vector<bool> is_chosen(best.size());
  for (const size_t group : largest(best, groups.groups_per_row)) is_chosen[group] = true;
  for (size_t i = 0; i < out.size(); ++i) {
    if (!is_chosen[i / each] && !std::isnan(out[i])) out[i] = -INFINITY;
  }
  return out;
}

}  // namespace

std::vector<std::vector<ExpertRow>> share_rows(std::span<const float> scores, int64_t experts,
                                               int64_t chosen, bool renormalizes,
                                               const ExpertGroups& groups) {
  const auto width = static_cast<size_t>(experts);
  std::vector<std::vector<ExpertRow>> out(width);
  for (size_t row = 0; row * width < scores.size(); ++row) {
    const std::span<const float> mine = scores.subspan(row * width, width);
    const std::vector<size_t> best = largest(of_best_groups(mine, groups), chosen);
    const auto weight = [&](size_t i) { return std::exp(mine[i] - mine[best[0]]); };
    float sum = 0;
    if (renormalizes) {
      for (const size_t i : best) sum += weight(i);
    } else {
      for (size_t i = 0; i < width; ++i) sum += weight(i);
    }
    for (const size_t i : best) out[i].push_back({static_cast<int64_t>(row), weight(i) / sum});
  }
  return out;
}

}  // namespace kv
