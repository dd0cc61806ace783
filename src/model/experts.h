#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kv {

/// A row that an expert works on, and what its output counts there.
struct ExpertRow {
  int64_t row = 0;
  float weight = 0;
};

/// For each expert the rows whose `chosen` largest scores it is among (of equal ones the lower
/// expert), ascending. Weights are the softmax over all experts; over the chosen ones when
/// `renormalizes`. A row with a NaN among its scores gets NaN weights.
///
/// scores  [rows, experts]
/// With groups (of experts that lie side by side) the chosen are among the `groups_per_row` ones
/// whose best scores are largest.
struct ExpertGroups {
  int64_t groups = 0;  // 0 = all experts are one
  int64_t groups_per_row = 0;
};
std::vector<std::vector<ExpertRow>> share_rows(std::span<const float> scores, int64_t experts,
                                               int64_t chosen, bool renormalizes,
                                               const ExpertGroups& groups = {});

}  // namespace kv
