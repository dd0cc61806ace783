#pragma once

#include <cstdint>
#include <span>

namespace kv {

/// Orderings or sign patterns at least as extreme as the data, out of how many.
struct PermutationTest {
  uint64_t extreme = 0;
  uint64_t total = 1;
  double p = 1;
};

/// Does the loss grow along x? Statistic sum (x - xbar) y over all orderings of y; extreme = a
/// value
/// <= the observed one (the observed ordering counts). Exact for up to 8 points; above, `draws`
/// random orderings from `seed`, and p = (1 + extreme)/(1 + draws). Needs only bucket means, and
/// has low power. At least 2 points, x not constant.
PermutationTest permutation_trend(std::span<const double> x, std::span<const double> y,
                                  uint64_t seed = 0, int draws = 100000);

/// Is the mean difference below 0? Under no shift every difference is as likely with the other
/// sign; extreme = sign patterns with a sum <= the observed one. Zeros are dropped. Exact, so at
/// most 20 non-zero differences, else ValueError.
PermutationTest sign_flip_test(std::span<const double> differences);

}  // namespace kv
