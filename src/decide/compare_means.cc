#include "decide/compare_means.h"

#include <cmath>

namespace kv {
namespace {

constexpr size_t kMostExactBuckets = 8;  // as permutation_trend counts orderings
constexpr uint64_t kTrendSeed = 20260;   // so that the same table always gives the same p

}  // namespace

MeansComparison compare_means(const BucketMeans& means, double alpha) {
  MeansComparison out;
  std::vector<double> x;
  out.has_lengths = !means.lengths.empty();
  for (size_t b = 0; b < means.buckets.size(); ++b) {
    x.push_back(out.has_lengths ? std::log2(means.lengths[b]) : static_cast<double>(b));
    out.differences.push_back(means.candidate[b] - means.control[b]);
    // 0.954 - 0.954 read from other digits is no difference.
    if (std::abs(out.differences.back()) < 1e-12) out.differences.back() = 0;
  }
  out.sign = sign_test(out.differences);
  out.is_exact = x.size() <= kMostExactBuckets;
  out.trend = permutation_trend(x, out.differences, kTrendSeed);
  if (out.trend.p <= alpha) {
    out.shift = ShiftType::kLengthGrowing;
  } else if (out.sign.p_loss <= alpha) {
    out.shift = ShiftType::kUniform;
  }
  if (out.has_lengths) {
    out.auc_control = length_curve_auc(means.lengths, means.control);
    out.auc_candidate = length_curve_auc(means.lengths, means.candidate);
  }
  return out;
}

}  // namespace kv
