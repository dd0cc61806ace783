#include "decide/look_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "stats/distributions.h"
#include "stats/sequential.h"

namespace kv {
namespace {

/// look_bounds() integrates for some milliseconds, and a decision asks for the same bounds again
/// and again.
std::vector<double> bounds_of(const std::vector<double>& fractions, double alpha) {
  static std::mutex mutex;
  static std::map<std::pair<std::vector<double>, double>, std::vector<double>> known;
  const std::scoped_lock lock(mutex);
  const auto [found, is_new] = known.try_emplace({fractions, alpha});
  if (is_new) {
    known.erase(found);  // look_bounds may throw
    std::vector<double> bounds = look_bounds(fractions, 2 * alpha);
    return known[{fractions, alpha}] = std::move(bounds);
  }
  return found->second;
}

}  // namespace

std::vector<Look> plan_looks(const std::vector<double>& fractions, double alpha_accept,
                             double alpha_shift) {
  if (fractions.size() == 1)
    return {{1, 1, alpha_accept, -normal_quantile(alpha_accept), alpha_shift}};
  const std::vector<double> accept = bounds_of(fractions, alpha_accept);
  const std::vector<double> shift = bounds_of(fractions, alpha_shift);
  std::vector<Look> out;
  for (size_t k = 0; k < fractions.size(); ++k) {
    out.push_back({static_cast<int64_t>(k) + 1, static_cast<int64_t>(fractions.size()),
                   alpha_accept, accept[k], nominal_level(shift[k])});
  }
  return out;
}

int64_t documents_at(const std::vector<double>& fractions, int64_t number, int64_t documents) {
  const double fraction = fractions[static_cast<size_t>(number) - 1];
  const double exact = fraction * static_cast<double>(documents);
  return std::min(documents, static_cast<int64_t>(std::ceil(exact - 1e-9)));
}

int64_t look_of(const std::vector<double>& fractions, int64_t index, int64_t documents) {
  int64_t number = 1;
  while (index >= documents_at(fractions, number, documents)) ++number;
  return number;
}

}  // namespace kv
