#pragma once

#include <span>
#include <vector>

namespace kv {

/// Holm-adjusted p-values in the order given: adj of the k-th smallest of m is the maximum over
/// j <= k of min(1, (m - j + 1) p_(j)). Rejecting where adj <= alpha keeps the chance of any wrong
/// rejection at alpha (Holm 1979). Throws ValueError if a p is outside [0, 1].
std::vector<double> holm_adjusted(std::span<const double> p_values);

}  // namespace kv
