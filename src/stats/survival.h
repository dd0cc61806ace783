#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
};

/// At least 1 example, every index >= 1; else ValueError.
DivergenceSummary summarize_divergence(std::span<const FirstDivergence> examples);

}  // namespace kv
