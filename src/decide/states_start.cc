#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "decide/machine.h"
#include "stats/mcnemar.h"
#include "stats/moments.h"
#include "stats/sample_size.h"

namespace kv {
namespace {

bool ends_run(const PreflightFact& fact) {
  return fact.rule != "BACKEND_FALLBACK" && fact.rule != "NUMERIC_FAULT" &&
         fact.rule != "NOT_SERVED";
}

struct Repeat {
  double flips = 0;  // share
  double p = 1;      // two-sided
  int64_t n = 0;
};

Repeat test_repeat(const std::vector<PairedSummary>& buckets) {
  Repeat out;
  size_t flips = 0;
  bool is_binary = true;
  for (const PairedSummary& bucket : buckets) {
    out.n += static_cast<int64_t>(bucket.n);
    flips += bucket.losses + bucket.gains;
    is_binary &= bucket.is_binary;
  }
  out.flips = static_cast<double>(flips) / static_cast<double>(out.n);
  if (flips == 0) return out;
  if (is_binary) {
    const PairedCounts counts = pooled_shift(buckets).counts();
    out.p = mcnemar(counts.losses, counts.gains).midp_two_sided;
  } else {
    const Shift shift = weighted_shift(buckets, std::vector<double>(buckets.size(), 1.0));
    out.p = std::min(1.0, 2 * std::min(shift.p_above(0), shift.p_below(0)));
  }
  return out;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

ControlBucket control_bucket(const DecideOptions& options, const PairedBucket& pair) {
  ControlBucket row;
  row.id = fmt::format("AA/{}/{}", kControlArm, pair.bucket);
  row.bucket = pair.bucket;
  row.n = pair.n();
  row.documents = pair.documents;
  for (size_t i = 0; i < pair.reference.size(); ++i) {
    row.flips += pair.reference[i] != pair.candidate[i];
  }
  row.mean = mean_of(pair.reference);
  row.chance = mean_of(pair.chance);
  row.se = clustered_error(pair.reference, pair.document).cr1;
  row.is_kept = row.mean > row.chance + options.insensitive_se * row.se;
  return row;
}

}  // namespace

std::optional<Step> Machine::preflight() {
  if (auto step = read_facts()) return step;
  if (auto step = find_support()) return step;
  std::vector<std::string> usable;
  for (const ArmLayout layout : layouts()) {
    if (is_usable(layout)) usable.push_back(text(layout));
  }
  if (!usable.empty()) {
    trace("PREFLIGHT", "", fmt::format("{}", fmt::join(usable, " ")), "SUPPORTED -> AA");
    return std::nullopt;
  }
  const bool is_fault = std::ranges::any_of(
      verdict_.reasons, [](const Reason& reason) { return reason.rule == "NUMERIC_FAULT"; });
  trace("PREFLIGHT", "", "", "no layout left");
  if (is_fault) {
    return reject("NUMERIC_FAULT", "every FP8 layout that runs gives logits that are not finite");
  }
  return reject("BACKEND_FALLBACK",
                fmt::format("{} runs no FP8 layout without falling back", options_.target));
}

std::optional<Step> Machine::read_facts() {
  for (const PreflightFact& fact : evidence_.facts) {
    if (fact.holds) continue;
    verdict_.reasons.push_back({fact.rule, fact.record, fact.text});
    if (ends_run(fact)) {
      trace("PREFLIGHT", "", "", fact.rule);
      return inconclusive(fact.rule, fact.text);
    }
    const auto layout =
        std::ranges::find(layouts(), fact.layout, [](ArmLayout one) { return name(one); });
    if (layout != layouts().end()) out_[*layout] = &fact;
  }
  return std::nullopt;
}

std::optional<Step> Machine::find_support() {
  std::vector<std::string> unknown;
  for (const ArmLayout layout : layouts()) {
    const auto found = std::ranges::find_if(records_.supports, [&](const SupportRecord& record) {
      return record.layout == name(layout) && record.target == options_.target;
    });
    if (found == records_.supports.end()) {
      unknown.push_back(text(layout));
    } else if (found->supported) {
      supported_.push_back(layout);
    } else {
      verdict_.reasons.push_back(
          {"BACKEND_FALLBACK", found->record_id,
           fmt::format("{} does not run on {}: {}", found->layout, found->target, found->reason)});
    }
    if (const auto fault = fault_of(text(layout))) verdict_.reasons.push_back(*fault);
  }
  if (unknown.empty()) return std::nullopt;
  return Ask{.state = "PREFLIGHT",
             .kind = AskKind::kSupport,
             .block = "",
             .arms = unknown,
             .buckets = {},
             .reason = fmt::format("which layouts {} runs", options_.target)};
}

std::optional<Step> Machine::control_twice() {
  const std::string control(kControlArm), repeat(kControlRepeat);
  if (!is_finished("AA", control, 1) || !is_finished("AA", repeat, 1)) {
    return Ask{.state = "AA",
               .kind = AskKind::kControlTwice,
               .block = "AA",
               .arms = {control, repeat},
               .buckets = {},
               .documents = std::min(options_.documents, options_.aa_documents),
               .questions_per_document = options_.questions_per_document,
               .reason = "how much the control differs from itself under another batch plan"};
  }
  for (const std::string& one : {control, repeat}) {
    const auto fault = fault_of(one);
    if (!fault) continue;
    verdict_.reasons.push_back(*fault);
    trace("AA", "AA", one, "NUMERIC_FAULT");
    return inconclusive("NUMERIC_FAULT", "the control itself gives logits that are not finite");
  }
  buckets_ = examples_.buckets("AA", control);
  const auto pairs = examples_.pairs("AA", control, repeat, buckets_);
  if (auto step = judge_repeat(pairs)) return step;
  return drop_insensitive(pairs);
}

std::optional<Step> Machine::judge_repeat(const std::vector<PairedBucket>& pairs) {
  std::vector<PairedSummary> summaries;
  for (const PairedBucket& pair : pairs) {
    if (pair.documents < 2) {
      trace("AA", "AA", "", "TOO_FEW_CLUSTERS");
      return too_few(fmt::format("bucket {} has one document", pair.bucket),
                     zero_flip_n(options_.margin.bucket, options_.alpha_accept));
    }
    summaries.push_back(summarize_scores(pair));
  }
  double kld = 0;
  int64_t positions = 0;
  for (const LogitRecord& record : records_.logits) {
    if (record.block != "AA" || record.arm != kControlRepeat) continue;
    kld += record.kld;
    positions += record.n;
  }
  if (positions > 0) verdict_.aa_kld = kld / static_cast<double>(positions);
  const Repeat repeat = test_repeat(summaries);
  verdict_.aa_flips = repeat.flips;
  verdict_.aa_p = repeat.p;
  verdict_.reasons.push_back(
      {"AA", "AA/bf16#2",
       fmt::format("the control under another batch plan: {:.2f} % of {} answers flip (at most "
                   "{:.4g} %), two-sided mid-p {:.2g} (more than {:.4g})",
                   100 * repeat.flips, repeat.n, 100 * options_.aa_max_flip, repeat.p,
                   options_.aa_min_p)});
  if (repeat.flips <= options_.aa_max_flip && repeat.p > options_.aa_min_p) return std::nullopt;
  trace("AA", "AA", std::string(kControlRepeat), "HARNESS_NOISE");
  return inconclusive("HARNESS_NOISE",
                      "the control does not repeat itself under another batch plan, so no "
                      "difference can be laid to the cache");
}

std::optional<Step> Machine::drop_insensitive(const std::vector<PairedBucket>& pairs) {
  std::vector<std::string> kept;
  double all_traffic = 0;
  for (const PairedBucket& pair : pairs) all_traffic += traffic_share(options_, pair.bucket);
  for (const PairedBucket& pair : pairs) {
    const ControlBucket row = control_bucket(options_, pair);
    verdict_.control.push_back(row);
    const double share = traffic_share(options_, row.bucket) / all_traffic;
    if (share < thresholds::kLeastTrafficShare) {
      verdict_.control.back().is_kept = false;
      verdict_.dropped_buckets.push_back(row.bucket);
      verdict_.notices.push_back(
          fmt::format("bucket {} is dropped: it has {:.2g} % of the traffic (at least {:.4g} %)",
                      row.bucket, 100 * share, 100 * thresholds::kLeastTrafficShare));
      continue;
    }
    if (row.is_kept) {
      kept.push_back(row.bucket);
      continue;
    }
    const std::string notice = fmt::format(
        "bucket {} is dropped: the control scores {:.1f} % (se {:.1f}, {} questions on {} "
        "documents), no better than guessing ({:.1f} %), and cannot show a loss",
        row.bucket, 100 * row.mean, 100 * row.se, row.n, row.documents, 100 * row.chance);
    verdict_.notices.push_back(notice);
    verdict_.dropped_buckets.push_back(row.bucket);
    verdict_.reasons.push_back({"INSENSITIVE", row.id, notice});
  }
  buckets_ = kept;
  if (!kept.empty()) {
    trace("AA", "AA", std::string(kControlRepeat), "repeats -> SCREEN");
    return std::nullopt;
  }
  trace("AA", "AA", "", "CONTROL_FLOOR");
  return inconclusive("CONTROL_FLOOR",
                      "the control answers no bucket better than guessing: with these tasks no "
                      "loss could be seen");
}

}  // namespace kv
