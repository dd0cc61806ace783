#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "decide/machine.h"

namespace kv {

Step Machine::localise() {
  std::vector<std::string> layouts, arms;
  for (const ArmLayout layout : supported_) {
    layouts.emplace_back(name(layout));
    arms.push_back(text(layout));
  }
  const bool has_static =
      std::ranges::any_of(supported_, [&](ArmLayout layout) { return arm(layout).needs_scales(); });
  if (has_static) {
    if (auto step = need_calibration("LOCALISE")) return *step;
  }
  if (!is_complete(records_.ranges, layouts, static_cast<int64_t>(evidence_.layers.size()))) {
    return ask_to_localise(AskKind::kRanges, arms, "which layers and heads every layout damages");
  }
  if (has_static) test_representative("E2");
  findings_ = read_ranges(options_, records_.ranges, layouts);
  if (has_token_drift_) {
    findings_.has_token_drift = true;
    findings_.reasons.push_back(
        {"TOKEN_DRIFT", records_.calibrations.back().record_id,
         fmt::format("evaluated contexts exceed the calibrated amax too often to be of one "
                     "population with the calibration set (exceedance test, Holm-adjusted p below "
                     "{:.4g}): a scale per token",
                     options_.token_drift_p)});
  }
  verdict_.reasons.insert(verdict_.reasons.end(), findings_.reasons.begin(),
                          findings_.reasons.end());
  some_suggested_ = findings_.has_head_dispersion || findings_.has_token_drift ||
                    !findings_.offset_layers.empty();
  trace("LOCALISE", "E2", "",
        fmt::format("offset layers [{}], heads {}, tokens {} -> TRY",
                    fmt::join(findings_.offset_layers, " "),
                    findings_.has_head_dispersion ? "differ" : "alike",
                    findings_.has_token_drift ? "drift" : "stay"));
  if ((findings_.has_head_dispersion || options_.exhaustive) && is_usable(ArmLayout::kFp8Head)) {
    if (auto step = try_arm(arm(ArmLayout::kFp8Head))) return *step;
  }
  for (const ArmLayout base : supported_) {
    if (out_.contains(base)) continue;
    if (auto step = try_selective(base)) return *step;
  }
  if ((findings_.has_token_drift || options_.exhaustive) && is_usable(ArmLayout::kFp8TokenHead)) {
    if (auto step = try_arm(arm(ArmLayout::kFp8TokenHead))) return *step;
  }
  for (const ArmLayout base : supported_) {
    if (some_suggested_ || out_.contains(base)) continue;
    if (auto step = try_diffuse(base)) return *step;
  }
  return no_trial_left();
}

Ask Machine::ask_to_localise(AskKind kind, const std::vector<std::string>& arms,
                             const std::string& reason) const {
  return Ask{.state = "LOCALISE",
             .kind = kind,
             .block = "E2",
             .arms = arms,
             .buckets = buckets_,
             .documents = options_.documents,
             .questions_per_document = options_.questions_per_document,
             .reason = reason};
}

/// The layers that `base` needs in BF16, or an ask for what is missing to know them, or nothing.
std::vector<int> Machine::selective_layers(ArmLayout base, std::optional<Step>& step) {
  const auto order = restore_order(records_.ranges, std::string(name(base)),
                                   static_cast<int64_t>(evidence_.layers.size()));
  const size_t longest =
      longest_prefix(options_, evidence_.layers, arm(base), order, longest_tokens());
  const size_t guess = predicted_prefix(options_, records_.ranges, arm(base), order, longest);
  Ablation ablation =
      ablate(options_, records_.arms, arm(base), order, longest, kld_floor(), guess);
  if (!ablation.missing.empty()) {
    step = ask_to_localise(
        AskKind::kKld, ablation.missing,
        fmt::format("how much of {}'s KLD goes when the worst layers stay in BF16", text(base)));
    return {};
  }
  verdict_.ablation.insert(verdict_.ablation.end(), ablation.points.begin(), ablation.points.end());
  if (!ablation.layers.empty()) {
    some_suggested_ = true;
    const AblationPoint& last = ablation.points.back();
    verdict_.reasons.push_back(
        {"LAYER_CONCENTRATION", last.record,
         fmt::format("{}: KLD {:.4g} nats instead of {:.4g}, {:.0f} % of the excess gone with {} "
                     "of {} layers in BF16",
                     last.arm, last.kld, ablation.points.front().kld, 100 * last.share_removed,
                     last.bf16_layers, evidence_.layers.size())});
    return ablation.layers;
  }
  std::vector<int> of_type = layers_of_type(base, step);
  if (step.has_value() || !of_type.empty()) return of_type;
  // An offset is named by the range pass alone, if what it names may be kept in BF16.
  const bool fits = findings_.offset_layers.size() <= longest;
  return fits ? findings_.offset_layers : std::vector<int>{};
}

/// Where the model has layers of several types and no few layers carry the loss: the type that
/// does, if the cache without it still gains enough.
std::vector<int> Machine::layers_of_type(ArmLayout base, std::optional<Step>& step) {
  const std::string base_text = text(base);
  std::vector<std::string> missing;
  const auto record_of = [&](const std::string& one) {
    const ArmRecord* record = find_arm(records_.arms, one);
    if (record == nullptr) missing.push_back(one);
    return record;
  };
  std::vector<std::pair<const LayerType*, const ArmRecord*>> measured;
  const std::vector<LayerType> types = layer_types(evidence_.layers);
  for (const LayerType& type : types) {
    const ArmSpec without = arm(base).with_bf16_layers(type.layers);
    if (capacity_gain(evidence_.layers, without, longest_tokens()) < options_.capacity_gain_min) {
      continue;
    }
    measured.emplace_back(&type, record_of(without.text()));
  }
  if (measured.empty()) return {};
  const ArmRecord* all = record_of(base_text);
  if (!missing.empty()) {
    step = ask_to_localise(AskKind::kKld, missing,
                           fmt::format("whether layers of one type carry {}'s loss", base_text));
    return {};
  }
  for (const auto& [type, record] : measured) {
    const double share = share_removed(all->kld, record->kld, kld_floor());
    verdict_.ablation.push_back({record->arm, record->record_id,
                                 static_cast<int>(type->layers.size()), record->kld, share});
    if (share < options_.excess_removed) continue;
    some_suggested_ = true;
    verdict_.reasons.push_back(
        {"LAYER_TYPE", record->record_id,
         fmt::format("{}: KLD {:.4g} nats instead of {:.4g}, {:.0f} % of the excess gone with the "
                     "{} layers {} in BF16",
                     record->arm, record->kld, all->kld, 100 * share, type->layers.size(),
                     type->what)});
    return type->layers;
  }
  return {};
}

/// The arm with these layers in BF16: K or V alone where that suffices and the engine can say it.
/// One more ablation run tells.
ArmSpec Machine::with_sides(ArmLayout base, const std::vector<int>& layers,
                            std::optional<Step>& step) {
  const ArmSpec whole = arm(base).with_bf16_layers(layers);
  const ArmRecord* all = find_arm(records_.arms, text(base));
  if (all == nullptr) return whole;                              // named by the range pass alone
  if (evidence_.layers.front().latent_values > 0) return whole;  // V lies in K
  const ArmSpec sides = blamed_sides(records_.ranges, arm(base), layers);
  const ArmRecord* record = find_arm(records_.arms, sides.text());
  if (record == nullptr) {
    step = ask_to_localise(AskKind::kKld, {sides.text()}, "whether K or V alone in BF16 suffices");
    return whole;
  }
  const double share = share_removed(all->kld, record->kld, kld_floor());
  verdict_.ablation.push_back(
      {record->arm, record->record_id, static_cast<int>(layers.size()), record->kld, share});
  const bool suffices = share >= options_.excess_removed;
  const std::string obstacle = unlaunchable(sides);
  const bool is_judged = suffices && (options_.bf16_sides || obstacle.empty());
  std::string fate = "not enough, both are kept";
  if (suffices) {
    fate = fmt::format("enough, {:.3f} times the tokens instead of {:.3f}",
                       capacity_gain(evidence_.layers, sides, longest_tokens()),
                       capacity_gain(evidence_.layers, whole, longest_tokens()));
    if (!is_judged) fate += fmt::format("; {}: whole layers are judged", obstacle);
  }
  verdict_.reasons.push_back(
      {"ONE_SIDE", record->record_id,
       fmt::format("{}: KLD {:.4g} nats instead of {:.4g}, {:.0f} % of the excess gone: {}",
                   record->arm, record->kld, all->kld, 100 * share, fate)});
  return is_judged ? sides : whole;
}

std::optional<Step> Machine::try_selective(ArmLayout base) {
  std::optional<Step> step;
  const std::vector<int> layers = selective_layers(base, step);
  if (step.has_value() || layers.empty()) return step;
  const ArmSpec candidate = with_sides(base, layers, step);
  return step.has_value() ? step : try_launchable(candidate);
}

/// Nothing stands out: as many layers as the capacity allows, whatever their share of the model.
std::optional<Step> Machine::try_diffuse(ArmLayout base) {
  DecideOptions wide = options_;
  wide.bf16_share_max = 1;
  const auto order = restore_order(records_.ranges, std::string(name(base)),
                                   static_cast<int64_t>(evidence_.layers.size()));
  const auto longest = [&](const DecideOptions& options) {
    return longest_prefix(options, evidence_.layers, arm(base), order, longest_tokens());
  };
  if (longest(wide) <= longest(options_)) return std::nullopt;
  const size_t guess = predicted_prefix(wide, records_.ranges, arm(base), order, longest(wide));
  const Ablation ablation =
      ablate(wide, records_.arms, arm(base), order, longest(wide), kld_floor(), guess);
  if (!ablation.missing.empty()) {
    return ask_to_localise(AskKind::kKld, ablation.missing,
                           "whether as many layers in BF16 as the capacity allows help");
  }
  if (ablation.layers.empty()) return std::nullopt;
  const AblationPoint& last = ablation.points.back();
  verdict_.ablation.push_back(last);
  verdict_.reasons.push_back(
      {"DIFFUSE", last.record,
       fmt::format(
           "{}: KLD {:.4g} nats instead of {:.4g} with {} of {} layers in BF16, more than a "
           "few; the cache still holds {:.3f} times the tokens",
           last.arm, last.kld, ablation.points.front().kld, last.bf16_layers,
           evidence_.layers.size(),
           capacity_gain(evidence_.layers, ArmSpec::parse(last.arm), longest_tokens()))});
  return try_launchable(arm(base).with_bf16_layers(ablation.layers));
}

/// One block serves all trials. Each has the level of one candidate, as if it had a block of its
/// own, unless `strict` divides the level among all that may come.
double Machine::trial_alpha() const {
  if (!options_.strict) return options_.alpha_accept;
  const size_t most = supported_.size() + (findings_.has_head_dispersion || options_.exhaustive) +
                      (findings_.has_token_drift || options_.exhaustive) + has_tried_windows_;
  return options_.alpha_accept / static_cast<double>(most);
}

std::optional<Step> Machine::try_arm(const ArmSpec& candidate) {
  const std::string candidate_text = candidate.text(), control(kControlArm);
  if (const auto fault = fault_of(candidate_text)) {
    some_faulted_ = true;
    verdict_.reasons.push_back(*fault);
    trace("TRY", "", candidate_text, "NUMERIC_FAULT -> next");
    return std::nullopt;
  }
  const bool has_tensor = is_usable(ArmLayout::kFp8Tensor);
  const std::string tensor = text(ArmLayout::kFp8Tensor);
  std::vector<std::string> arms = {control};
  if (has_tensor) arms.push_back(tensor);
  arms.push_back(candidate_text);
  for (const Look& look : looks("E3", trial_alpha())) {
    if (auto ask =
            need_quality("TRY", "E3", arms, look,
                         fmt::format("{} on examples that did not suggest it", candidate_text))) {
      return *ask;
    }
    const Comparison tried = run_comparison("E3", candidate_text, control, look);
    std::optional<Comparison> against;
    if (tried.table.is_pass && has_tensor) {
      against = run_comparison("E3", candidate_text, tensor, look);
    }
    const bool has_regression = against && !has_no_regression(against->table, weak_);
    const bool is_open = tried.table.is_open() || has_regression;
    if (is_open && !look.is_last()) {
      trace_open("TRY", tried.table);
      continue;
    }
    explain(tried);
    if (against) verdict_.tables.push_back(against->table);
    if (is_open || !tried.table.is_pass) {
      end_trial(tried.table, has_regression ? &against->table : nullptr);
      return std::nullopt;
    }
    trace("TRY", "E3", candidate_text, at_look(look) + "Q_PASS -> SYSTEMS");
    Step step = systems(candidate, tried);
    const auto* verdict = std::get_if<Verdict>(&step);
    if (verdict == nullptr || !verdict->sub_reason.starts_with("NO_SYSTEMS_GAIN")) return step;
    some_without_gain_ = true;  // another layout may still gain enough
    return std::nullopt;
  }
  return std::nullopt;
}

/// A trial that accepted nothing. `against`: it is not worse than BF16, but that it is no worse
/// than C2 either, by this table, needs more questions.
void Machine::end_trial(const ArmTable& table, const ArmTable* against) {
  const std::string look = at_look(table.look);
  if (against != nullptr) {
    some_open_ = true;
    open_n_ = std::max(open_n_, questions_required(*against));
    verdict_.reasons.push_back({"NOREG", against->overall.id,
                                fmt::format("{} is not shown to be no worse than {} outside {}",
                                            table.arm, against->reference, fmt::join(weak_, " "))});
    trace("TRY", "E3", table.arm, look + "Q_PASS, NOREG not shown -> next");
    return;
  }
  const bool is_open = table.is_open();
  (is_open ? some_open_ : some_failed_) = true;
  if (is_open) open_n_ = std::max(open_n_, questions_required(table));
  trace("TRY", "E3", table.arm,
        fmt::format("{}{} -> next", look,
                    is_open             ? "Q_OPEN"
                    : table.is_material ? "Q_MATERIAL"
                                        : "Q_SHIFT"));
}

Step Machine::no_trial_left() {
  if (some_open_) {
    return too_few("no layout is shown to be harmless, and some not to lose either", open_n_);
  }
  if (some_without_gain_) {
    return reject("NO_SYSTEMS_GAIN: CAPACITY",
                  fmt::format("what keeps the quality holds less than {:.4g} times the tokens",
                              options_.capacity_gain_min));
  }
  if (some_unlaunchable_) {
    return reject(
        "NOT_LAUNCHABLE",
        fmt::format("layers kept in BF16 are what would help, and {} has no flags for them",
                    options_.target));
  }
  if (!some_suggested_) {
    return reject("QUALITY_DIFFUSE",
                  "the loss sits in no head, token range or small set of layers");
  }
  if (some_faulted_ && !some_failed_) {
    return reject("NUMERIC_FAULT", "every layout that could help gives logits that are not finite");
  }
  return reject("QUALITY", "every FP8 layout that could help loses more than the margin allows");
}

}  // namespace kv
