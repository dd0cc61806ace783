#include "decide/calibration_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "decide/thresholds.h"
#include "stats/representativeness.h"

namespace kv {
namespace {

/// Those of the evaluation's tasks and buckets.
AmaxRecords of_the_mix(const AmaxRecords& calibrated, const AmaxRecords& evaluated) {
  std::set<std::string_view> tasks, buckets;
  for (const AmaxRecord* one : evaluated) {
    tasks.insert(one->task);
    buckets.insert(one->bucket);
  }
  AmaxRecords out;
  std::ranges::copy_if(calibrated, std::back_inserter(out), [&](const AmaxRecord* one) {
    return tasks.contains(one->task) && buckets.contains(one->bucket);
  });
  return out;
}

struct Shares {
  std::vector<double> calibrated, evaluated;  // counts, category by category
};

Shares shares_by(const AmaxRecords& calibrated, const AmaxRecords& evaluated,
                 std::string AmaxRecord::*field) {
  std::map<std::string, std::pair<double, double>> counts;
  for (const AmaxRecord* one : calibrated) ++counts[one->*field].first;
  for (const AmaxRecord* one : evaluated) ++counts[one->*field].second;
  Shares out;
  for (const auto& [category, count] : counts) {
    out.calibrated.push_back(count.first);
    out.evaluated.push_back(count.second);
  }
  return out;
}

/// Examples are whole: no set of this size may come closer.
bool is_nearest(const Shares& shares, double calibrated, double evaluated) {
  for (size_t i = 0; i < shares.calibrated.size(); ++i) {
    const double wanted = calibrated * shares.evaluated[i] / evaluated;
    if (std::abs(shares.calibrated[i] - wanted) >= 1) return false;
  }
  return true;
}

std::string other_shares(const AmaxRecords& calibrated, const AmaxRecords& evaluated,
                         std::string AmaxRecord::*field, std::string_view rule,
                         std::string_view what) {
  const Shares shares = shares_by(calibrated, evaluated, field);
  const double off = total_variation(shares.calibrated, shares.evaluated);
  if (off <= thresholds::kCalibrationTv ||
      is_nearest(shares, static_cast<double>(calibrated.size()),
                 static_cast<double>(evaluated.size()))) {
    return "";
  }
  return fmt::format(
      "{}: the shares of {} in {} calibration examples differ from those of {} "
      "evaluated contexts by a total variation of {:.3f} (at most {:.4g})",
      rule, what, calibrated.size(), evaluated.size(), off, thresholds::kCalibrationTv);
}

/// log2 of the lengths, to a sixteenth: generated documents end within 1 % of their target, and
/// which of them ends where says nothing about a mix of lengths.
std::vector<double> log_lengths(const AmaxRecords& records) {
  std::vector<double> out;
  for (const AmaxRecord* one : records) {
    out.push_back(std::round(16 * std::log2(static_cast<double>(one->tokens))) / 16);
  }
  return out;
}

std::string other_lengths(const AmaxRecords& calibrated, const AmaxRecords& evaluated) {
  const double gap = ks_statistic(log_lengths(calibrated), log_lengths(evaluated));
  const double limit = ks_critical_95(calibrated.size(), evaluated.size());
  if (gap < limit) return "";
  return fmt::format(
      "LENGTH_MISMATCH: the lengths of {} calibration examples are not those of {} evaluated "
      "contexts: Kolmogorov-Smirnov {:.3f} on log2 tokens (less than {:.3f})",
      calibrated.size(), evaluated.size(), gap, limit);
}

}  // namespace

std::string calibration_mismatch(const AmaxRecords& all, const AmaxRecords& evaluated) {
  if (evaluated.empty() || all.empty()) return "";
  const AmaxRecords calibrated = of_the_mix(all, evaluated);
  if (calibrated.empty()) {
    return fmt::format(
        "LENGTH_MISMATCH: none of {} calibration examples is of an evaluated task and length",
        all.size());
  }
  std::string out =
      other_shares(calibrated, evaluated, &AmaxRecord::bucket, "LENGTH_MISMATCH", "lengths");
  if (out.empty()) {
    out =
        other_shares(calibrated, evaluated, &AmaxRecord::task, "TASK_MISMATCH: task_mix", "tasks");
  }
  if (out.empty()) {
    out = other_shares(calibrated, evaluated, &AmaxRecord::language, "LANGUAGE_MISMATCH: languages",
                       "languages");
  }
  return out.empty() ? other_lengths(calibrated, evaluated) : out;
}

std::vector<Exceedance> test_calibration(const AmaxRecords& all, const AmaxRecords& evaluated) {
  const AmaxRecords mix = of_the_mix(all, evaluated);
  if (mix.empty()) return {};
  // The scales cover all examples, the count is of those that could be exchanged with evaluated
  // ones: the test then rejects less often than it may.
  std::vector<float> amax;
  for (const AmaxRecord* one : all) {
    const std::vector<float> more = largest_of_heads(one->amax, one->kv_heads);
    amax.resize(std::max(amax.size(), more.size()));
    for (size_t i = 0; i < more.size(); ++i) amax[i] = std::max(amax[i], more[i]);
  }
  std::vector<EvaluatedAmax> contexts;
  for (const AmaxRecord* one : evaluated) {
    contexts.push_back({one->bucket, largest_of_heads(one->amax, one->kv_heads)});
  }
  return test_exceedance(amax, std::ssize(mix), contexts);
}

}  // namespace kv
