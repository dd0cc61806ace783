#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/estimator.h"
#include "checkpoint/model_spec.h"
#include "decide/decide.h"
#include "evaluate/generators.h"
#include "study/runner.h"

namespace kv {

inline constexpr const char* kAllTasks = "all";

/// What a decision is asked about, beside the rules of DecideOptions.
struct StudyOptions {
  DecideOptions decide;
  std::vector<int64_t> buckets;  // prompt lengths in tokens, ascending
  // Of the generators. Empty: those of default_tasks() that a pilot of the control allows;
  // kAllTasks alone: those of all tasks.
  std::vector<std::string> tasks;
  Form form = Form::kPlain;
  uint64_t seed = 20260;
  Estimator estimator;          // of static scales
  int64_t max_new_tokens = 64;  // of answers that are generated freely
  AnswerSampling sampling;      // an example's score is the mean over its samples
  BatchPlan plan;
};

/// Lengths to test when nobody says: powers of two from 256 on that the prompts reach and the
/// model's context holds; with kvscale's own text 512, 1024 and 2048.
std::vector<int64_t> default_buckets(std::span<const Prompt> prompts, bool own_text,
                                     const ModelSpec& model);

}  // namespace kv
