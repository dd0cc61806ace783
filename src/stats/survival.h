#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stats/intervals.h"

namespace kv {

/// One generated example: the 1-based index of the first token that differs, or, if none differs,
/// the length up to which the two arms agree.
struct FirstDivergence {
  int64_t index = 0;
  bool diverged = false;
};

/// Share of examples still identical after token `index`; one point per index with a divergence.
struct SurvivalPoint {
  int64_t index = 0;
  int64_t at_risk = 0;  // examples that reached this index still identical
  int64_t diverged = 0;
  double survival = 1;
};

/// Survival of greedy agreement: S(t) = product over indices <= t of (1 - diverged / at_risk)
/// (Kaplan & Meier 1958); a censored example is at risk up to and including its length.
struct DivergenceSummary {
  std::vector<SurvivalPoint> curve;
  double hazard = 0;            // divergences per generated token
  double exact_match_rate = 0;  // share of examples without divergence

  /// S(t), t >= 0; 1 before the first divergence.
  double survival_at(int64_t t) const;

  /// The first index at which no more than half of the examples are still identical; none when the
  /// curve does not fall so low.
  std::optional<int64_t> median() const;
};

/// At least 1 example, every index >= 1; else ValueError.
DivergenceSummary summarize_divergence(std::span<const FirstDivergence> examples);

/// An interval for every point of the examples' curve, whose examples fall into clusters:
/// S^exp(-+ t_{G-1} se / |ln S|), se^2 = G / (G - 1) times the sum over clusters of u_g^2, u_g the
/// sum of what each of its examples moves ln S(t) by:
///   d / (Y (Y - d)) for an example at risk at an index, -1 / Y for one that diverges there
/// (Y at risk, d diverged). With a cluster of its own for every example the sum is Greenwood's
/// variance. Where S is 0: [0, Wilson's upper end for 0 of G]. One cluster gives [0, 1], as it says
/// nothing about others. Throws as summarize_divergence does, for sizes that differ and for a
/// confidence outside (0, 1).
std::vector<Interval> survival_intervals(std::span<const FirstDivergence> examples,
                                         std::span<const int64_t> cluster_ids, double confidence);

}  // namespace kv
