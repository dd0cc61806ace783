#include "stats/survival.h"

#include <map>

#include "stats/check.h"

namespace kv {

double DivergenceSummary::survival_at(int64_t t) const {
  double survival = 1;
  for (const SurvivalPoint& point : curve) {
    if (point.index > t) break;
    survival = point.survival;
  }
  return survival;
}

DivergenceSummary summarize_divergence(std::span<const FirstDivergence> examples) {
  require(!examples.empty(), "summarize_divergence", "examples", 0, "at least 1");
  struct Ending {
    int64_t diverged = 0, censored = 0;
  };
  std::map<int64_t, Ending> endings;
  double tokens = 0;
  int64_t diverged = 0;
  for (const FirstDivergence& example : examples) {
    require(example.index >= 1, "summarize_divergence", "index", static_cast<double>(example.index),
            "at least 1");
    Ending& ending = endings[example.index];
    ++(example.diverged ? ending.diverged : ending.censored);
    tokens += static_cast<double>(example.index);
    diverged += example.diverged;
  }
  const int64_t n = static_cast<int64_t>(examples.size());
  DivergenceSummary out;
  out.hazard = static_cast<double>(diverged) / tokens;
  out.exact_match_rate = static_cast<double>(n - diverged) / static_cast<double>(n);
  int64_t at_risk = n;
  double survival = 1;
  for (const auto& [index, ending] : endings) {
    if (ending.diverged > 0) {
      survival *= 1 - static_cast<double>(ending.diverged) / static_cast<double>(at_risk);
      out.curve.push_back({index, at_risk, ending.diverged, survival});
    }
    at_risk -= ending.diverged + ending.censored;
  }
  return out;
}

}  // namespace kv
