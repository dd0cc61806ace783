#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "engine/engine.h"
#include "evaluate/example.h"
#include "evaluate/record_log.h"
#include "study/progress.h"

namespace kv {

/// What calibration looks at, and what it is of.
struct CalibrationExample {
  Prompt prompt;
  std::string task, bucket;  // as evaluated examples have them; no task: a prompt without answers
};

struct CalibrationOptions {
  Estimator estimator;
  bool keep_values = false;           // histograms, also where the estimator needs none
  std::filesystem::path values_file;  // where histograms are kept between two starts
  BatchPlan plan = {};
  // Histograms of a large model are tens of megabytes: they are saved after so many tokens, and
  // what a crash loses of them is run again. The examples' records are not lost.
  int64_t tokens_between_saves = 8192;
};

/// What the control's cache stored of every example.
struct CalibrationPass {
  std::vector<ExampleAmax> examples;    // in the order of the prompts
  std::optional<ValueObserver> values;  // of all of them
};

/// Runs the examples through the control. Each one leaves an AmaxRecord "amax/CAL/ID" behind, which
/// is synced before the next one begins, so a pass that was killed or ran out of memory goes on
/// where it was; with histograms, from the last time that they were saved. Throws ValueError when a
/// layer saw nothing or a value is not finite.
CalibrationPass run_calibration_pass(const std::shared_ptr<const Model>& model,
                                     std::span<const CalibrationExample> examples,
                                     const CalibrationOptions& options, RecordLog& log,
                                     Progress& progress);

/// The calibration of a pass, or of its first `count` examples. For estimators that need values
/// only the whole pass has them.
Calibration calibration_of(const Model& model, const CalibrationPass& pass,
                           std::span<const CalibrationExample> examples, const Estimator& estimator,
                           const CalibrationSource& source);

/// Prompts as examples without a task, in buckets of powers of two.
std::vector<CalibrationExample> calibration_examples(std::span<const Prompt> prompts);

/// A pass that leaves nothing behind.
Calibration calibrate(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                      const CalibrationSource& source, const BatchPlan& plan, Progress& progress);

/// Hash over all prompts' token ids.
std::string prompts_sha256(std::span<const Prompt> prompts);

/// What one context left in the control's cache, for the log: "amax/BLOCK/EXAMPLE".
AmaxRecord amax_record(const AmaxObserver& observer, const std::string& block,
                       const std::string& example, const std::string& task,
                       const std::string& bucket, const std::string& language);

}  // namespace kv
