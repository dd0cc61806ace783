#include "study/scan.h"

#include <fmt/core.h>

#include <algorithm>

#include "decide/flags.h"
#include "kvscale/error.h"
#include "study/observe.h"

namespace kv {
namespace {

std::vector<const Prompt*> pointers_to(std::span<const Prompt> prompts) {
  std::vector<const Prompt*> out;
  for (const Prompt& prompt : prompts) out.push_back(&prompt);
  return out;
}

std::vector<RangeLayout> range_layouts(std::span<const ArmLayout> layouts, const ModelSpec& spec,
                                       const Calibration& calibration) {
  std::vector<RangeLayout> out;
  for (const ArmLayout layout : layouts) {
    ScaleTable scales(calibration.num_layers, calibration.num_kv_heads,
                      "scale 1.0 (none supplied)");
    if (layout == ArmLayout::kFp8Tensor || layout == ArmLayout::kFp8Head) {
      scales = calibration.scales(layout == ArmLayout::kFp8Head);
    }
    out.push_back({std::string(name(layout)), stored_format(layout), std::move(scales),
                   spec.latent ? spec.latent->kv_rank : 0});
  }
  return out;
}

ArmToRun arm_to_run(const ArmSpec& spec, const Calibration& calibration) {
  if (!spec.needs_scales()) return {spec, std::nullopt};
  return {spec, calibration.scales(spec.layout == ArmLayout::kFp8Head)};
}

std::vector<RangeRecord> of_layout(const std::vector<RangeRecord>& ranges,
                                   const std::string& layout) {
  std::vector<RangeRecord> out;
  std::ranges::copy_if(ranges, std::back_inserter(out),
                       [&](const RangeRecord& r) { return r.layout == layout; });
  return out;
}

}  // namespace

std::vector<UnseenToken> find_unseen_tokens(const std::shared_ptr<const Model>& model,
                                            std::span<const Prompt> prompts,
                                            const Calibration& calibration, const BatchPlan& plan,
                                            Progress& progress) {
  std::vector<int32_t> all;
  for (const Prompt& prompt : prompts) {
    all.insert(all.end(), prompt.tokens.begin(), prompt.tokens.end());
  }
  const std::vector<int32_t> ids = unseen_ids(calibration.source, all);
  if (ids.empty()) return {};
  UnseenTokenObserver observer(calibration, ids);
  for (const Prompt& prompt : prompts) {
    if (unseen_ids(calibration.source, prompt.tokens).empty()) continue;
    observer.begin(prompt.tokens);
    const Prompt* one = &prompt;
    observe(model, {&one, 1}, plan, "tokens without calibration", observer, progress,
            [](size_t) {});
  }
  return observer.worst_first();
}

std::vector<RangeRecord> measure_ranges(const std::shared_ptr<const Model>& model,
                                        std::span<const Prompt> prompts,
                                        const Calibration& calibration,
                                        std::span<const ArmLayout> layouts,
                                        const RangeOptions& range, const BatchPlan& plan,
                                        RecordLog& log, Progress& progress) {
  const size_t expected = static_cast<size_t>(model->spec().num_layers) * 3 * layouts.size();
  if (log.ranges().size() == expected) return log.ranges();
  const int64_t longest = std::ssize(std::ranges::max_element(prompts, {}, [](const Prompt& p) {
                                       return p.tokens.size();
                                     })->tokens);
  if (longest <= range.first_query) {
    throw ValueError(fmt::format(
        "prompts: score noise is measured from position {} on: expected a prompt of at least {} "
        "tokens, found at most {}",
        range.first_query, range.first_query + 1, longest));
  }
  RangeMeter meter(range_layouts(layouts, model->spec(), calibration), range);
  observe(model, pointers_to(prompts), plan, "ranges", meter, progress,
          [&](size_t) { meter.end_sequence(0); });
  for (const FirstTokenRecord& record : meter.first_tokens()) {
    if (!log.has(record.record_id)) log.append(record);
  }
  const std::vector<RangeRecord> records = meter.finish();
  for (const RangeRecord& record : records) {
    if (!log.has(record.record_id)) log.append(record);
  }
  return records;
}

ScanResult run_scan(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                    const CalibrationSource& source, const ScanOptions& options, RecordLog& log,
                    Progress& progress) {
  ScanResult out;
  const std::vector<ArmLayout> layouts =
      options.layouts.empty() ? fp8_layouts(model->geometry()) : options.layouts;
  out.calibration = calibrate(model, prompts, source, options.plan, progress);
  out.ranges = measure_ranges(model, prompts, out.calibration, layouts, options.range, options.plan,
                              log, progress);
  out.first_tokens = log.first_tokens();
  std::vector<ArmToRun> arms;
  for (const ArmLayout layout : layouts) {
    arms.push_back(
        arm_to_run(ArmSpec{layout, {}, Math::kBf16, options.range.rounding, ""}, out.calibration));
  }
  const size_t plain = arms.size();
  for (size_t i = 0; i < plain && options.with_bf16_layers; ++i) {
    const std::string layout(name(arms[i].spec.layout));
    const std::vector<int> layers =
        bf16_shortlist(of_layout(out.ranges, layout), model->spec().num_layers);
    out.bf16_layers[layout] = layers;
    if (!layers.empty())
      arms.push_back(arm_to_run(arms[i].spec.with_bf16_layers(layers), out.calibration));
  }
  // Positions are one bucket here: a scan has no length curve.
  LogitPassOptions pass{"scan", {model->spec().max_positions}, options.plan};
  run_logit_pass(model, prompts, arms, pass, log, progress);
  out.arms.push_back(summarize_arm(log, "scan", "bf16"));
  for (const ArmToRun& arm : arms) out.arms.push_back(summarize_arm(log, "scan", arm.spec.text()));
  return out;
}

}  // namespace kv
