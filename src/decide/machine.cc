#include "decide/machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"

namespace kv {

std::span<const ArmLayout> decided_layouts(std::string_view target) {
  static constexpr std::array<ArmLayout, 1> kQ8 = {ArmLayout::kQ8Block};
  if (target.starts_with("llama-server")) return kQ8;
  return kFp8Layouts;
}

std::string_view name(Outcome outcome) {
  constexpr std::array<std::string_view, 9> kNames = {"KEEP_SCALE_ONE",  "CALIBRATE_PER_TENSOR",
                                                      "STATIC_PER_HEAD", "DYNAMIC_PER_TOKEN_HEAD",
                                                      "SELECTIVE_BF16",  "KEEP_Q8_0",
                                                      "REJECT_FP8",      "REJECT_Q8_0",
                                                      "INCONCLUSIVE"};
  return kNames.at(static_cast<size_t>(outcome));
}

std::string_view name(AskKind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "support", "control_twice", "quality", "calibration", "ranges", "kld", "capacity"};
  return kNames.at(static_cast<size_t>(kind));
}

Step next_step(const DecideOptions& options, const Evidence& evidence) {
  check_options(options);
  if (evidence.layers.empty()) {
    throw ValueError("decide: evidence.layers: expected the model's layers, found none");
  }
  return Machine(options, evidence).run();
}

std::string at_look(const Look& look) {
  return look.of == 1 ? "" : fmt::format("look {} of {}: ", look.number, look.of);
}

Machine::Machine(const DecideOptions& options, const Evidence& evidence)
    : options_(options),
      evidence_(evidence),
      records_(evidence.records),
      examples_(evidence.records) {
  verdict_.options = options;
  verdict_.tasks_from_generators = options.tasks_from_generators;
}

Step Machine::run() {
  if (auto step = preflight()) return *step;
  if (auto step = control_twice()) return *step;
  return screen();
}

ArmSpec Machine::arm(ArmLayout layout) const {
  ArmSpec spec;
  spec.layout = layout;
  spec.math = options_.math;
  spec.rounding = options_.rounding;
  // Engines read per-token-head scales with a 16-bit query only (vLLM 0.32, TRITON_ATTN).
  if (layout == ArmLayout::kFp8TokenHead) spec.math = Math::kBf16;
  return spec;
}

/// Logits of this arm that were not finite, in a teacher-forced pass or in answers.
std::optional<Reason> Machine::fault_of(const std::string& arm_text) const {
  for (const LogitRecord& r : records_.logits) {
    if (r.arm != arm_text || r.non_finite == 0) continue;
    return Reason{"NUMERIC_FAULT", r.record_id,
                  fmt::format("{}: {} of {} positions of {} have logits that are not finite", r.arm,
                              r.non_finite, r.n + r.non_finite, r.document)};
  }
  const auto is_faulty = [&](const ExampleRecord& r) { return r.arm == arm_text && !r.finite; };
  const auto found = std::ranges::find_if(records_.examples, is_faulty);
  if (found == records_.examples.end()) return std::nullopt;
  return Reason{
      "NUMERIC_FAULT", found->record_id,
      fmt::format("{}: the logits of {} answers are not finite, of {} among them", arm_text,
                  std::ranges::count_if(records_.examples, is_faulty), found->example_id)};
}

bool Machine::is_usable(ArmLayout layout) const {
  return std::ranges::find(supported_, layout) != supported_.end() && !out_.contains(layout) &&
         !fault_of(text(layout));
}

bool Machine::is_finished(const std::string& block, const std::string& arm_text,
                          int64_t look) const {
  const auto& records = examples_.of(block, arm_text);
  for (const BlockSize& size : evidence_.sizes) {
    if (size.block != block || size.look != look) continue;
    const auto in_bucket = [&](const ExampleRecord* r) {
      return r->bucket == size.bucket && r->look <= look;
    };
    const bool is_dropped =
        !buckets_.empty() && std::ranges::find(buckets_, size.bucket) == buckets_.end();
    if (!is_dropped && std::ranges::count_if(records, in_bucket) < size.examples) return false;
  }
  return !records.empty();
}

std::optional<Ask> Machine::need_quality(const std::string& state, const std::string& block,
                                         const std::vector<std::string>& arms, const Look& look,
                                         const std::string& reason) const {
  const auto is_done = [&](const std::string& one) { return is_finished(block, one, look.number); };
  if (std::ranges::all_of(arms, is_done)) return std::nullopt;
  return Ask{.state = state,
             .kind = AskKind::kQuality,
             .block = block,
             .arms = arms,
             .buckets = buckets_,
             .look = look.number,
             .documents = documents_at(options_.looks, look.number, options_.documents),
             .questions_per_document = options_.questions_per_document,
             .reason = reason};
}

Comparison Machine::run_comparison(const std::string& block, const std::string& arm_text,
                                   const std::string& reference, const Look& look) {
  const auto pairs = examples_.pairs(block, reference, arm_text, buckets_, look.number);
  for (const PairedBucket& pair : pairs) longest_ = std::max(longest_, pair.mean_prompt_tokens);
  return compare(options_, {block, arm_text, reference}, pairs, look, verdict_.aa_flips);
}

/// The planned looks, with the bounds of the plan, less those before the last one that have fewer
/// documents in a bucket than the interval with clusters is trusted for.
std::vector<Look> Machine::looks(const std::string& block, double alpha) const {
  std::vector<Look> out = plan_looks(options_.looks, alpha, options_.alpha_shift);
  std::erase_if(out, [&](const Look& look) {
    return !look.is_last() && std::ranges::any_of(evidence_.sizes, [&](const BlockSize& size) {
      return size.block == block && size.look == look.number &&
             size.documents < thresholds::kMinDocumentsQuick;
    });
  });
  return out;
}

/// The table that decided, and the rows that its verdict rests on as reasons.
void Machine::explain(const Comparison& comparison) {
  const ArmTable& table = comparison.table;
  verdict_.tables.push_back(table);
  const std::string rule = table.is_pass       ? "Q_PASS"
                           : table.is_material ? "Q_MATERIAL"
                           : table.is_shift()  ? "Q_SHIFT"
                                               : "Q_OPEN";
  const double alpha = table.look.alpha;
  const auto add = [&](const std::string& id, const std::string& row) {
    verdict_.reasons.push_back(
        {rule, id,
         fmt::format("{} against {} on {}: {}", table.arm, table.reference, table.block, row)});
  };
  for (const BucketRow& row : table.buckets) {
    add(row.id, describe(row, row.margin, alpha));
  }
  add(table.overall.id, describe(table.overall, "all buckets", alpha));
  add(table.validity.id, describe(table.validity, "valid answers", alpha));
  if (table.shift != ShiftType::kNone) {
    verdict_.reasons.push_back(
        {"PERSISTENT_SHIFT", table.overall.id,
         fmt::format("{} against {} on {}: {}, Holm-adjusted p: overall {:.2g}, trend {:.2g}, sign "
                     "{:.2g} (family-wise {:.4g})",
                     table.arm, table.reference, table.block, name(table.shift),
                     table.overall.p_loss_holm, table.p_trend_holm, table.p_sign_holm,
                     table.look.shift_level)});
  }
}

void Machine::trace(const std::string& state, const std::string& block, const std::string& arm_text,
                    const std::string& event) {
  verdict_.state_trace.push_back({state, block, arm_text, event});
}

void Machine::trace_open(const std::string& state, const ArmTable& table) {
  trace(state, table.block, table.arm, at_look(table.look) + "open -> next look");
}

int64_t Machine::longest_tokens() const {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(longest_)));
}

}  // namespace kv
