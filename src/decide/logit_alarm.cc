#include "decide/logit_alarm.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "decide/thresholds.h"

namespace kv {

std::string logit_alarm(const LogitSummary& summary, double kld_floor) {
  std::vector<std::string> found;
  if (summary.non_finite > 0) {
    found.push_back(
        fmt::format("{} positions with logits that are not finite, a fault whatever "
                    "the rest says",
                    summary.non_finite));
  }
  if (summary.n > 0) {
    const double limit = std::max(thresholds::kAlarmKld, thresholds::kAlarmFloors * kld_floor);
    const double tail = summary.kld_quantiles.back();
    if (summary.kld.mean > limit) {
      found.push_back(fmt::format("KLD {:.3g} nats (above {:.3g})", summary.kld.mean, limit));
    }
    if (summary.same_top < thresholds::kAlarmSameTop) {
      found.push_back(fmt::format("{:.1f} % of the top tokens are the control's (below {:.3g} %)",
                                  100 * summary.same_top, 100 * thresholds::kAlarmSameTop));
    }
    if (tail > thresholds::kAlarmTailKld) {
      found.push_back(fmt::format("one position in a thousand beyond {:.3g} nats (above {:.3g})",
                                  tail, thresholds::kAlarmTailKld));
    }
  }
  return fmt::format("{}", fmt::join(found, "; "));
}

namespace {

/// The bucket of several with the largest KLD among those that raise the alarm, and why.
std::string worst_bucket(std::span<const LogitRecord> records, double kld_floor) {
  std::map<std::string, std::vector<LogitRecord>> buckets;
  for (const LogitRecord& record : records) buckets[record.bucket].push_back(record);
  if (buckets.size() < 2) return "";
  std::string out;
  double most = -1;
  for (const auto& [bucket, own] : buckets) {
    const LogitSummary summary = summarize(own);
    const std::string alarm = logit_alarm(summary, kld_floor);
    if (alarm.empty() || summary.kld.mean <= most) continue;
    most = summary.kld.mean;
    out = fmt::format("worst in bucket {}: {}", bucket, alarm);
  }
  return out;
}

}  // namespace

std::vector<std::string> logit_alarms(std::span<const LogitRecord> records, double kld_floor) {
  std::vector<std::string> arms, out;
  for (const LogitRecord& record : records) {
    if (std::ranges::find(arms, record.arm) == arms.end()) arms.push_back(record.arm);
  }
  for (const std::string& arm : arms) {
    std::vector<LogitRecord> own;
    std::ranges::copy_if(records, std::back_inserter(own),
                         [&](const LogitRecord& record) { return record.arm == arm; });
    std::string alarm = logit_alarm(summarize(own), kld_floor);
    const std::string worst = worst_bucket(own, kld_floor);
    if (alarm.empty() && worst.empty()) continue;
    if (!worst.empty()) alarm += (alarm.empty() ? "" : "; ") + worst;
    out.push_back(
        fmt::format("logit alarm, {}: {}: judge its answers on many examples; this decides nothing",
                    arm, alarm));
  }
  return out;
}

}  // namespace kv
