#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "calibrate/unseen_tokens.h"
#include "evaluate/range_health.h"
#include "study/calibration_pass.h"
#include "study/logit_pass.h"

namespace kv {

struct ScanOptions {
  RangeOptions range;
  BatchPlan plan;
  std::vector<ArmLayout> layouts = {};  // empty: all that the model's cache has
  bool with_bf16_layers = true;         // each layout again with its shortlist kept in BF16
};

/// What a scan found; everything in it is in the log too.
struct ScanResult {
  std::vector<RangeRecord> ranges;
  std::vector<FirstTokenRecord> first_tokens;
  std::vector<ArmRecord> arms;                          // bf16 first
  std::map<std::string, std::vector<int>> bf16_layers;  // layout -> its shortlist, worst first
  Calibration calibration;                              // from these very prompts
};

/// The one-minute answer: an amax pass over the prompts, a measuring pass of the control with every
/// layout's rounding applied on the side, then the logits of every layout, and of every layout with
/// its broken (else doubtful) layers kept in BF16, beside the control's. Resumes from the log.
ScanResult run_scan(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                    const CalibrationSource& source, const ScanOptions& options, RecordLog& log,
                    Progress& progress);

/// The token ids of `prompts` that the calibration never fed, measured by a pass of the control
/// over the prompts that have some; most clipped first. Nothing runs when there are none, or when
/// the calibration does not say which it fed.
std::vector<UnseenToken> find_unseen_tokens(const std::shared_ptr<const Model>& model,
                                            std::span<const Prompt> prompts,
                                            const Calibration& calibration, const BatchPlan& plan,
                                            Progress& progress);

/// The measuring pass alone: appends its records (ranges and first tokens), or gives those that are
/// there.
std::vector<RangeRecord> measure_ranges(const std::shared_ptr<const Model>& model,
                                        std::span<const Prompt> prompts,
                                        const Calibration& calibration,
                                        std::span<const ArmLayout> layouts,
                                        const RangeOptions& range, const BatchPlan& plan,
                                        RecordLog& log, Progress& progress);

}  // namespace kv
