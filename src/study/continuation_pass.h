#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evaluate/example.h"
#include "evaluate/record_log.h"
#include "study/logit_pass.h"
#include "study/progress.h"
#include "study/runner.h"

namespace kv {

struct ContinuationOptions {
  std::string block;                  // goes into the records
  std::vector<int64_t> bucket_edges;  // of prompt lengths
  int64_t tokens = 0;                 // generated after each prompt, as far as the context has room
  AnswerSampling sampling;
  BatchPlan plan;
};

/// Lets the control and all arms go on from every prompt, side by side, and records where each arm
/// leaves the control's way: one GenerationRecord per prompt, arm and sample. A continuation ends
/// at the model's stop ids. Prompts whose records are there already are skipped. Records what each
/// arm really was.
void run_continuation_pass(const std::shared_ptr<const Model>& model,
                           std::span<const Prompt> prompts, std::span<const ArmToRun> arms,
                           const ContinuationOptions& options, RecordLog& log, Progress& progress);

}  // namespace kv
