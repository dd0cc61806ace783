#include "study/calibration_mix.h"

#include <algorithm>
#include <cmath>

#include "decide/thresholds.h"
#include "stats/representativeness.h"

namespace kv {
namespace {

std::vector<double> count_tasks(const std::vector<const Document*>& documents,
                                const std::vector<const Document*>& all) {
  std::map<std::string, double> counts;
  for (const Document* one : all) counts[one->task] = 0;
  for (const Document* one : documents) ++counts[one->task];
  std::vector<double> out;
  for (const auto& [task, n] : counts) out.push_back(n);
  return out;
}

}  // namespace

std::vector<const Document*> spread(const std::vector<const Document*>& from, int64_t count) {
  std::vector<const Document*> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(from[static_cast<size_t>((2 * i + 1) * std::ssize(from) / (2 * count))]);
  }
  return out;
}

std::vector<const Document*> share_of_tasks(std::vector<const Document*> bucket, int64_t least) {
  std::ranges::stable_sort(bucket, {}, [](const Document* one) { return one->task; });
  for (int64_t count = least; count < std::ssize(bucket); ++count) {
    std::vector<const Document*> out = spread(bucket, count);
    const double off = total_variation(count_tasks(out, bucket), count_tasks(bucket, bucket));
    if (off <= thresholds::kCalibrationTv) return out;
  }
  return bucket;
}

std::map<std::string, int64_t> in_proportion(const std::map<std::string, int64_t>& available,
                                             const std::map<std::string, int64_t>& wanted) {
  double all_wanted = 0;
  int64_t all = 0;
  for (const auto& [bucket, n] : wanted) all_wanted += static_cast<double>(n);
  for (const auto& [bucket, n] : available) all += n;
  for (; all > 0; --all) {
    std::map<std::string, int64_t> out;
    bool fits = true;
    for (const auto& [bucket, n] : wanted) {
      out[bucket] = std::llround(static_cast<double>(all * n) / all_wanted);
      const auto found = available.find(bucket);
      fits &= out[bucket] <= (found == available.end() ? 0 : found->second);
    }
    if (fits) return out;
  }
  return {};
}

}  // namespace kv
