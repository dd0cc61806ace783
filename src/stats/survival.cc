#include "stats/survival.h"

#include <cmath>
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

std::optional<int64_t> DivergenceSummary::median() const {
  for (const SurvivalPoint& point : curve) {
    if (point.survival <= 0.5) return point.index;
  }
  return std::nullopt;
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

namespace {

Interval interval_of(double survival, double variance, double bound, double clusters) {
  if (survival <= 0) return {0, wilson_interval(0, clusters, bound).hi};
  const double log_survival = std::log(survival);  // below 0: every point has a divergence
  const double reach = bound * std::sqrt(variance) / -log_survival;
  return {std::exp(log_survival * std::exp(reach)), std::exp(log_survival * std::exp(-reach))};
}

}  // namespace

std::vector<Interval> survival_intervals(std::span<const FirstDivergence> examples,
                                         std::span<const int64_t> cluster_ids, double confidence) {
  require_same_size("survival_intervals", "cluster_ids", cluster_ids.size(), "examples",
                    examples.size());
  require_open_unit("survival_intervals", "confidence", confidence);
  const DivergenceSummary summary = summarize_divergence(examples);
  std::map<int64_t, double> moved;  // by the cluster's examples, up to the point
  for (const int64_t id : cluster_ids) moved[id] = 0;
  const auto clusters = static_cast<double>(moved.size());
  if (moved.size() < 2) return std::vector<Interval>(summary.curve.size(), Interval{0, 1});
  const double bound = critical_t(confidence, clusters - 1);
  std::vector<Interval> out;
  for (const SurvivalPoint& point : summary.curve) {
    const auto at_risk = static_cast<double>(point.at_risk);
    const auto diverged = static_cast<double>(point.diverged);
    const double stays = point.survival > 0 ? diverged / (at_risk * (at_risk - diverged)) : 0;
    for (size_t i = 0; i < examples.size(); ++i) {
      if (examples[i].index < point.index) continue;
      const bool leaves = examples[i].diverged && examples[i].index == point.index;
      moved[cluster_ids[i]] += leaves ? -1 / at_risk : stays;
    }
    double squares = 0;
    for (const auto& [id, sum] : moved) squares += sum * sum;
    out.push_back(
        interval_of(point.survival, squares * clusters / (clusters - 1), bound, clusters));
  }
  return out;
}

}  // namespace kv
