#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "decide/machine.h"
#include "kvscale/error.h"
#include "targets/targets.h"

namespace kv {
namespace {

Outcome outcome_of(const ArmSpec& candidate) {
  if (!candidate.bf16.empty()) return Outcome::kSelectiveBf16;
  switch (candidate.layout) {
    case ArmLayout::kFp8Scale1:
      return Outcome::kKeepScaleOne;
    case ArmLayout::kFp8Tensor:
      return Outcome::kCalibratePerTensor;
    case ArmLayout::kFp8Head:
      return Outcome::kStaticPerHead;
    case ArmLayout::kFp8TokenHead:
      return Outcome::kDynamicPerTokenHead;
    case ArmLayout::kQ8Block:
      return Outcome::kKeepQ8;
    case ArmLayout::kFp8DsMla:
    case ArmLayout::kBf16:
      break;
  }
  throw ValueError(
      "decide: bf16 is the control, and fp8_ds_mla is not decided on: neither can be "
      "accepted");
}

bool is_known_target(std::string_view target) {
  target = target.substr(0, target.find('@'));
  return std::ranges::any_of(
      targets(), [&](const TargetRow& row) { return row.name == target || row.engine == target; });
}

std::vector<int> layers_of(const ArmSpec& arm, bool whole) {
  std::vector<int> out;
  for (const Bf16Side& side : arm.bf16) {
    if ((side.k && side.v) == whole) out.push_back(side.layer);
  }
  return out;
}

LaunchRequest request_for(const ArmSpec& arm) {
  return {std::string(name(arm.layout)), layers_of(arm, true), layers_of(arm, false)};
}

}  // namespace

/// The kernel is known, the cache is as large as planned, nothing is slower than it may be where
/// the engine was timed, and more tokens fit or they come faster.
Step Machine::systems(const ArmSpec& candidate, const Comparison& decided) {
  const std::string arm_text = candidate.text();
  for (const ExampleRecord* record : examples_.of(decided.table.block, arm_text)) {
    if (!record->kernel.empty()) continue;
    verdict_.reasons.push_back(
        {"KERNEL_UNVERIFIED", record->record_id, "the record does not say which kernel ran"});
    trace("SYSTEMS", decided.table.block, arm_text, "KERNEL_UNVERIFIED");
    return inconclusive("KERNEL_UNVERIFIED", "what ran is not known for every answer");
  }
  const auto record = std::ranges::find(records_.capacities.rbegin(), records_.capacities.rend(),
                                        arm_text, &CapacityRecord::arm);
  if (record == records_.capacities.rend()) {
    return Ask{.state = "SYSTEMS",
               .kind = AskKind::kCapacity,
               .block = "",
               .arms = {arm_text},
               .buckets = {},
               .reason = "how many more tokens fit"};
  }
  if (record->allocated_bytes != record->planned_bytes) {
    verdict_.reasons.push_back(
        {"BACKEND_FALLBACK", record->record_id,
         fmt::format("{}: {} bytes allocated, {} planned: the cache is not stored as asked",
                     arm_text, record->allocated_bytes, record->planned_bytes)});
    trace("SYSTEMS", "", arm_text, "BACKEND_FALLBACK");
    return reject("BACKEND_FALLBACK", "the cache that was allocated is not the one asked for");
  }
  const std::optional<TimingJudgement> times =
      judge_timing(options_, records_.timings, arm_text, buckets_);
  if (times) {
    const bool is_larger = options_.capacity_needed && record->gain() >= options_.capacity_gain_min;
    const bool fails = !times->failure.empty() || (!times->has_gain && !is_larger);
    if (fails && times->noisy.empty()) {
      if (auto step = try_without_windows(candidate)) return std::move(*step);
    }
    if (auto step = judge_times(candidate, *times)) return std::move(*step);
  }
  const bool is_larger = has_capacity(candidate, *record) && options_.capacity_needed;
  if (!times && (!records_.timings.empty() || !options_.capacity_needed)) return untimed(candidate);
  if (is_larger || (times && times->has_gain)) return accept(candidate, decided);
  return without_gain(candidate, *record, times);
}

/// Speed was to be judged, and there are no times of this arm.
Step Machine::untimed(const ArmSpec& candidate) {
  std::set<std::string> timed;
  for (const TimingRecord& record : records_.timings) timed.insert(record.arm);
  trace("SYSTEMS", "", candidate.text(), "TIMING_MISSING");
  return inconclusive(
      "TIMING_MISSING",
      fmt::format("{} passed the tests of quality; timing records of it are wanted, there are {}",
                  candidate.text(),
                  timed.empty() ? "none" : fmt::format("some of {}", fmt::join(timed, ", "))));
}

/// Times that prove nothing leave the verdict open; times that are too long end it.
std::optional<Step> Machine::judge_times(const ArmSpec& candidate, const TimingJudgement& times) {
  verdict_.reasons.insert(verdict_.reasons.end(), times.reasons.begin(), times.reasons.end());
  if (!times.noisy.empty()) {
    trace("SYSTEMS", "", candidate.text(), "SYSTEMS_NOISY");
    return inconclusive("SYSTEMS_NOISY",
                        fmt::format("{} passed the tests of quality; its times prove nothing: {}",
                                    candidate.text(), times.noisy));
  }
  if (times.failure.empty()) return std::nullopt;
  trace("SYSTEMS", "", candidate.text(), "NO_SYSTEMS_GAIN: " + times.failure);
  return reject(
      "NO_SYSTEMS_GAIN: " + times.failure,
      fmt::format("{} is slower on the engine that serves than it may be", candidate.text()));
}

Step Machine::without_gain(const ArmSpec& candidate, const CapacityRecord& record,
                           const std::optional<TimingJudgement>& times) {
  const bool is_short = times && !options_.capacity_needed && times->break_even &&
                        times->median_context < *times->break_even;
  const std::string why = is_short ? "SHORT_CONTEXT" : "CAPACITY";
  trace("SYSTEMS", "", candidate.text(), "NO_SYSTEMS_GAIN: " + why);
  if (is_short) {
    return reject(
        "NO_SYSTEMS_GAIN: " + why,
        fmt::format("half of the traffic lies at {:.0f} tokens or below, {} decodes faster "
                    "from {:.0f} tokens on",
                    times->median_context, candidate.text(), *times->break_even));
  }
  return reject("NO_SYSTEMS_GAIN: " + why,
                fmt::format("{} holds {:.3f} times the tokens, {}", candidate.text(), record.gain(),
                            options_.capacity_needed
                                ? fmt::format("{:.4g} are required", options_.capacity_gain_min)
                                : "which are not needed, and is not shown to be faster"));
}

bool Machine::has_capacity(const ArmSpec& candidate, const CapacityRecord& record) {
  verdict_.capacity_gain = record.gain();
  verdict_.reasons.push_back(
      {"CAPACITY", record.record_id,
       fmt::format("{}: {} bytes instead of {} for {} tokens: {:.3f} times the tokens (at least "
                   "{:.4g})",
                   candidate.text(), record.arm_bytes, record.bf16_bytes, record.tokens,
                   record.gain(), options_.capacity_gain_min)});
  return record.gain() >= options_.capacity_gain_min;
}

/// Why the target's engine has no flags for the arm; empty if it has.
std::string Machine::unlaunchable(const ArmSpec& candidate) const {
  if (!is_known_target(options_.target)) {
    return fmt::format("{} is not in the table of targets", options_.target);
  }
  const LaunchFlags flags = launch_flags(request_for(candidate), options_.target);
  return flags.can_express ? "" : fmt::format("{}", fmt::join(flags.notes, "; "));
}

/// The trial of an arm with layers in BF16, unless the target has no flags for them: what cannot be
/// launched is said, and neither measured nor accepted. Half a layer is judged where that was asked
/// for.
std::optional<Step> Machine::try_launchable(const ArmSpec& candidate) {
  std::vector<int> layers;
  for (const Bf16Side& side : candidate.bf16) layers.push_back(side.layer);
  const ArmSpec whole = candidate.with_bf16_layers(layers);
  const std::string obstacle = is_known_target(options_.target) ? unlaunchable(whole) : "";
  if (obstacle.empty()) return try_arm(candidate);
  some_unlaunchable_ = true;
  verdict_.reasons.push_back(
      {"NOT_LAUNCHABLE", "", fmt::format("{}: {}: not tried", whole.text(), obstacle)});
  trace("TRY", "", whole.text(), "NOT_LAUNCHABLE -> next");
  return std::nullopt;
}

/// The flags of the arm or, where the engine has none, why, and what it can be launched with that
/// keeps at least as much in BF16.
void Machine::add_launch(const ArmSpec& candidate) {
  if (!is_known_target(options_.target)) {
    verdict_.notices.push_back(
        fmt::format("no launch flags: {} is not in the table of targets", options_.target));
    return;
  }
  const LaunchFlags flags = launch_flags(request_for(candidate), options_.target);
  LaunchLines& lines = verdict_.launch[std::string(find_target(options_.target).engine)];
  lines = {flags.text(), flags.notes};
  if (flags.can_express) return;
  lines.flags.clear();
  std::vector<int> layers;
  for (const Bf16Side& side : candidate.bf16) layers.push_back(side.layer);
  const ArmSpec whole = candidate.with_bf16_layers(layers);
  const LaunchFlags nearest = launch_flags(request_for(whole), options_.target);
  lines.notes.push_back(
      nearest.can_express
          ? fmt::format("not launchable as judged; launchable is {}, which keeps more in BF16 and "
                        "was not judged: {} ({:.3f} times the tokens)",
                        whole.text(), nearest.text(),
                        capacity_gain(evidence_.layers, whole, longest_tokens()))
          : "not launchable there: no flags keep these layers in BF16");
}

/// Layers with a window hold few tokens: quantized they can cost more time than they save. Once.
std::optional<Step> Machine::try_without_windows(const ArmSpec& candidate) {
  std::vector<int> kept;
  for (const Bf16Side& side : candidate.bf16) kept.push_back(side.layer);
  const size_t before = kept.size();
  for (size_t i = 0; i < evidence_.layers.size(); ++i) {
    const auto layer = static_cast<int>(i);
    const bool is_kept = std::ranges::find(kept, layer) != kept.end();
    if (evidence_.layers[i].window > 0 && !is_kept) kept.push_back(layer);
  }
  if (has_tried_windows_ || kept.size() == before || kept.size() == evidence_.layers.size()) {
    return std::nullopt;
  }
  has_tried_windows_ = true;
  trace("SYSTEMS", "", candidate.text(), "slower than it may be -> TRY without windowed layers");
  if (is_usable(ArmLayout::kFp8Tensor)) {
    if (auto step = need_calibration("TRY")) return step;
  }
  return try_launchable(candidate.with_bf16_layers(kept));
}

Verdict Machine::accept(const ArmSpec& candidate, const Comparison& decided) {
  trace("SYSTEMS", "", candidate.text(), "accept");
  add_launch(candidate);
  Verdict verdict = verdict_;
  verdict.outcome = outcome_of(candidate);
  verdict.layout = candidate.text();
  verdict.bf16_layers = layers_of(candidate, true);
  int64_t least = decided.table.buckets.front().n;
  for (const BucketRow& row : decided.table.buckets) least = std::min(least, row.n);
  verdict.sentence =
      options_.margin.recovery > 0
          ? fmt::format(
                "{} keeps at least {:.4g} % of BF16's score in every bucket ({}) and overall: "
                "one-sided level "
                "{:.4g}, at least {} questions a bucket",
                candidate.text(), 100 * options_.margin.recovery, fmt::join(buckets_, ", "),
                options_.alpha_accept, least)
          : fmt::format(
                "{} is not worse than BF16 by more than {:.4g} points in every bucket ({}) and by "
                "more than "
                "{:.4g} points overall: one-sided level {:.4g}, at least {} questions a bucket",
                candidate.text(), 100 * options_.margin.bucket, fmt::join(buckets_, ", "),
                100 * options_.margin.overall, options_.alpha_accept, least);
  finish(verdict);
  return verdict;
}

Verdict Machine::reject(const std::string& sub_reason, const std::string& sentence) {
  Verdict verdict = verdict_;
  verdict.outcome =
      layouts().front() == ArmLayout::kQ8Block ? Outcome::kRejectQ8 : Outcome::kRejectFp8;
  verdict.sub_reason = sub_reason;
  verdict.sentence = sentence;
  finish(verdict);
  return verdict;
}

Verdict Machine::inconclusive(const std::string& sub_reason, const std::string& sentence,
                              double n_required) {
  Verdict verdict = verdict_;
  verdict.outcome = Outcome::kInconclusive;
  verdict.sub_reason = sub_reason;
  verdict.sentence = sentence;
  verdict.n_required = n_required;
  finish(verdict);
  return verdict;
}

Verdict Machine::too_few(const std::string& what, double n_required) {
  const double least =
      static_cast<double>(options_.min_documents *
                          (options_.tasks_from_generators ? options_.questions_per_document : 1));
  const double n = std::ceil(std::max(n_required, least));
  return inconclusive("INSUFFICIENT_SAMPLES",
                      fmt::format("{}: about {:.0f} questions a bucket are needed", what, n), n);
}

/// What every verdict carries: the exit code, the notices and the commands that come next.
void Machine::finish(Verdict& verdict) const {
  verdict.exit_code = is_accepting(verdict.outcome)   ? kExitAccept
                      : is_rejecting(verdict.outcome) ? kExitReject
                                                      : kExitInconclusive;
  verdict.divergence = divergence_rows(records_);
  verdict.count_errors = count_error_rows(records_);
  if (options_.tasks_from_generators) {
    verdict.notices.emplace_back(
        "no prompt has an answer: task scores come from generated tasks of the same lengths, not "
        "from the traffic that will be served");
  }
  if (is_accepting(verdict.outcome) && is_known_target(options_.target)) {
    const ArmSpec arm = ArmSpec::parse(verdict.layout);
    const LayoutSupport served = support(name(arm.layout), options_.target);
    if (served.math == "fp8" && arm.math != Math::kFp8) {
      verdict.notices.push_back(fmt::format(
          "measured with 16-bit Q and P (math=bf16); {} takes them through FP8 too and can lose "
          "more: `{} {} --target {}` measures that",
          options_.target, options_.commands.repeat, options_.commands.margin, options_.target));
    }
  }
  if (is_accepting(verdict.outcome) && records_.timings.empty()) {
    verdict.notices.emplace_back(
        "only capacity was judged: speed is a matter of the engine that serves, and there is no "
        "timing record of it");
  }
  const Commands& commands = options_.commands;
  if (verdict.n_required > 0 && !options_.tasks_from_generators) {
    verdict.next.push_back(
        {fmt::format("{} {}", commands.repeat, commands.margin),
         fmt::format(
             "with {:.0f} prompts with answers in each of the buckets {}: a quarter of them "
             "falls to each block, and {:.0f} a block decide with a power of {:.4g} if there "
             "is no loss (where so many were asked, if the loss is the one observed)",
             4 * verdict.n_required, fmt::join(buckets_, ", "), verdict.n_required,
             options_.plan_power)});
  } else if (verdict.n_required > 0) {
    const auto documents = static_cast<int64_t>(
        std::ceil(verdict.n_required / static_cast<double>(options_.questions_per_document)));
    verdict.next.push_back(
        {fmt::format("{} {} --documents {} --questions {}", commands.repeat, commands.margin,
                     documents, options_.questions_per_document),
         fmt::format("{:.0f} questions a bucket ({} documents x {}) in {}: decides with a power of "
                     "{:.4g} if there is no loss (where so many were asked, if the loss is the one "
                     "observed)",
                     verdict.n_required, documents, options_.questions_per_document,
                     fmt::join(buckets_, ", "), options_.plan_power)});
  }
  if (options_.preset != "standard") {
    const DecideOptions standard = DecideOptions::standard();
    verdict.next.push_back(
        {commands.repeat + " --margin standard",
         fmt::format("the standard margin: {:.4g} points a bucket, {:.4g} overall, {} questions a "
                     "bucket",
                     100 * standard.margin.bucket, 100 * standard.margin.overall,
                     standard.documents * standard.questions_per_document)});
  }
}

}  // namespace kv
