#include "stats/holm.h"

#include <algorithm>
#include <numeric>

#include "stats/check.h"

namespace kv {

std::vector<double> holm_adjusted(std::span<const double> p_values) {
  for (const double p : p_values) require_probability("holm_adjusted", "p", p);
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    const double factor = static_cast<double>(order.size() - k);
    largest = std::max(largest, std::min(1.0, factor * p_values[order[k]]));
    adjusted[order[k]] = largest;
  }
  return adjusted;
}

}  // namespace kv
