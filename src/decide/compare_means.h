#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "evaluate/bucket_means.h"
#include "stats/permutation.h"
#include "stats/trend.h"

namespace kv {

/// What every result of compare_means says of itself.
inline constexpr std::string_view kMeansCaveat = "bucket-level only, low power";

/// Tests of a table of bucket means (method 4.10). They are fit for a remark, never for an
/// acceptance: a loss that they do not find may be there.
struct MeansComparison {
  std::vector<double> differences;  // candidate - control, shares
  SignTest sign;
  PermutationTest trend;  // over log2 of the lengths, or over the order of the rows
  bool has_lengths = false;
  bool is_exact = true;  // the trend over all orderings; else over random ones of a fixed seed
  ShiftType shift = ShiftType::kNone;
  std::optional<double> auc_control, auc_candidate;  // shares; with lengths only
};

/// alpha: one-sided level of the trend and the sign test, for the type of the shift.
MeansComparison compare_means(const BucketMeans& means, double alpha);

}  // namespace kv
