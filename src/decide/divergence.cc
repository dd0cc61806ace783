#include "decide/divergence.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "decide/pairs.h"
#include "decide/thresholds.h"
#include "stats/survival.h"

namespace kv {
namespace {

constexpr double kCurveConfidence = 0.95;

/// The generations of one row.
struct Compared {
  std::vector<FirstDivergence> all, undamaged;
  std::vector<int64_t> clusters;
  std::map<std::string, int64_t> documents;
  int64_t near_ties = 0;
  bool is_sampled = false;

  void add(const GenerationRecord& record) {
    const bool is_near_tie = record.diverged && record.margin < thresholds::kNearTie;
    all.push_back({record.fdi, record.diverged});
    undamaged.push_back({record.fdi, record.diverged && !is_near_tie});
    clusters.push_back(documents.try_emplace(record.document, std::ssize(documents)).first->second);
    near_ties += is_near_tie;
    is_sampled = is_sampled || record.sample > 0;
  }
};

/// The curve's end. Without a divergence there is no spread to be seen: then what can be said of
/// documents that all agree.
Interval end_of(const std::vector<Interval>& intervals, int64_t documents) {
  if (!intervals.empty()) return intervals.back();
  const auto n = static_cast<double>(documents);
  return {wilson_interval(n, n, critical_z(kCurveConfidence)).lo, 1};
}

DivergenceRow row_of(const Compared& compared) {
  DivergenceRow out;
  const DivergenceSummary summary = summarize_divergence(compared.all);
  const auto intervals = survival_intervals(compared.all, compared.clusters, kCurveConfidence);
  out.is_sampled = compared.is_sampled;
  out.n = std::ssize(compared.all);
  out.documents = std::ssize(compared.documents);
  out.near_ties = compared.near_ties;
  out.exact_match_rate = summary.exact_match_rate;
  out.hazard = summary.hazard;
  out.median = summary.median();
  for (const FirstDivergence& one : compared.all) {
    out.diverged += one.diverged;
    out.longest = std::max(out.longest, one.index);
  }
  for (size_t i = 0; i < summary.curve.size(); ++i) {
    const SurvivalPoint& point = summary.curve[i];
    out.curve.push_back({point.index, point.at_risk, point.diverged, point.survival, intervals[i]});
  }
  out.agreeing = summary.survival_at(out.longest);
  out.agreeing_interval = end_of(intervals, out.documents);
  out.undamaged = summarize_divergence(compared.undamaged).survival_at(out.longest);
  out.undamaged_interval = end_of(
      survival_intervals(compared.undamaged, compared.clusters, kCurveConfidence), out.documents);
  return out;
}

}  // namespace

std::vector<DivergenceRow> divergence_rows(const Records& records) {
  std::vector<std::pair<std::string, std::string>> order;  // of blocks and arms
  std::map<std::tuple<std::string, std::string, std::string>, Compared> rows;
  for (const GenerationRecord& record : records.generations) {
    if (record.fdi <= 0) continue;
    const std::pair key(record.block, record.arm);
    if (std::ranges::find(order, key) == order.end()) order.push_back(key);
    rows[{record.block, record.arm, record.bucket}].add(record);
  }
  std::vector<DivergenceRow> out;
  for (const auto& [key, compared] : rows) {
    DivergenceRow row = row_of(compared);
    std::tie(row.block, row.arm, row.bucket) = key;
    out.push_back(std::move(row));
  }
  const auto rank = [&](const DivergenceRow& row) {
    return std::ranges::find(order, std::pair(row.block, row.arm)) - order.begin();
  };
  std::ranges::stable_sort(out, [&](const DivergenceRow& a, const DivergenceRow& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return bucket_before(a.bucket, b.bucket);
  });
  return out;
}

std::vector<CountErrorRow> count_error_rows(const Records& records) {
  std::vector<CountErrorRow> out;
  for (const CountErrorRecord& record : records.count_errors) {
    auto row = std::ranges::find_if(out, [&](const CountErrorRow& one) {
      return one.block == record.block && one.arm == record.arm && one.bucket == record.bucket;
    });
    if (row == out.end())
      row = out.insert(out.end(), CountErrorRow{record.block, record.arm, record.bucket});
    ++row->n;
    row->mean += (record.error - row->mean) / static_cast<double>(row->n);
  }
  return out;
}

}  // namespace kv
