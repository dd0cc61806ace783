#include "stats/permutation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "stats/check.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr size_t kMaxExactPoints = 8;  // 8! = 40,320 orderings
constexpr size_t kMaxExactSigns = 20;  // 2^20 patterns, a few milliseconds

// Ties are part of the exact p-value, and values such as 95.4 - 95.0 tie only up to rounding.
constexpr double kTie = 1e-11;

double magnitude(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += std::abs(v);
  return sum;
}

std::vector<double> centred(std::span<const double> x) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  std::vector<double> out(x.begin(), x.end());
  for (double& v : out) v -= mean;
  return out;
}

/// Calls count(order) for every ordering of 0 .. n - 1.
template <typename Count>
void for_each_ordering(size_t n, Count count) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    count(order);
  } while (std::next_permutation(order.begin(), order.end()));
}

template <typename Count>
void for_random_orderings(size_t n, uint64_t seed, int draws, Count count) {
  SplitMix64 random(seed);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int d = 0; d < draws; ++d) {
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    count(order);
  }
}

}  // namespace

PermutationTest permutation_trend(std::span<const double> x, std::span<const double> y,
                                  uint64_t seed, int draws) {
  require_same_size("permutation_trend", "y", y.size(), "x", x.size());
  require(x.size() >= 2, "permutation_trend", "n", static_cast<double>(x.size()), "at least 2");
  require(draws >= 1, "permutation_trend", "draws", draws, "at least 1");
  require_finite("permutation_trend", "x", x);
  require_finite("permutation_trend", "y", y);
  const std::vector<double> dx = centred(x);
  require(magnitude(dx) > 0, "permutation_trend", "spread of x", 0, "more than 0");
  const double observed = std::inner_product(dx.begin(), dx.end(), y.begin(), 0.0);
  const double limit = observed + kTie * magnitude(dx) * magnitude(y);
  PermutationTest out{0, 0, 1};
  const auto count = [&](const std::vector<size_t>& order) {
    double value = 0;
    for (size_t i = 0; i < order.size(); ++i) value += dx[i] * y[order[i]];
    out.extreme += value <= limit;
    ++out.total;
  };
  if (x.size() <= kMaxExactPoints) {
    for_each_ordering(x.size(), count);
  } else {
    for_random_orderings(x.size(), seed, draws, count);
    ++out.extreme;  // the observed ordering itself: p is never 0
    ++out.total;
  }
  out.p = static_cast<double>(out.extreme) / static_cast<double>(out.total);
  return out;
}

PermutationTest sign_flip_test(std::span<const double> differences) {
  require_finite("sign_flip_test", "differences", differences);
  std::vector<double> sizes;
  double observed = 0;
  for (const double d : differences) {
    if (d != 0) sizes.push_back(std::abs(d));
    observed += d;
  }
  require(sizes.size() <= kMaxExactSigns, "sign_flip_test", "non-zero differences",
          static_cast<double>(sizes.size()), "at most 20");
  const double limit = observed + kTie * magnitude(sizes);
  PermutationTest out{0, uint64_t{1} << sizes.size(), 1};
  for (uint64_t signs = 0; signs < out.total; ++signs) {
    double sum = 0;
    for (size_t i = 0; i < sizes.size(); ++i) sum += (signs >> i & 1) ? sizes[i] : -sizes[i];
    out.extreme += sum <= limit;
  }
  out.p = static_cast<double>(out.extreme) / static_cast<double>(out.total);
  return out;
}

}  // namespace kv
