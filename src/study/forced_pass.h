#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evaluate/example.h"
#include "evaluate/record_log.h"
#include "study/logit_pass.h"
#include "study/progress.h"
#include "study/runner.h"

namespace kv {

/// The block of records of forced generations.
inline constexpr const char* kForcedBlock = "forced";

struct ForcedOptions {
  std::vector<int64_t> edges;  // of buckets of generated tokens
  int64_t tokens = 0;          // generated after each prompt, whatever stop ids come
  Sampling sampling;
  uint64_t seed = 0;
  BatchPlan plan;
};

/// The edges for `tokens` generated ones: 64, 256, 1,024, ... and `tokens`.
std::vector<int64_t> forced_edges(int64_t tokens);

/// Lets the control go on from every prompt and feeds what it wrote to all arms: LogitRecords by
/// generated tokens ("+64"), under the block "forced". What a cache does to a long generation adds
/// up over it, and short ones do not show it; all arms attend to the same tokens, so nothing here
/// hangs on where two texts part. Prompts whose records are there already are skipped. Throws
/// ValueError for a prompt that leaves no room for the tokens.
void run_forced_pass(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                     std::span<const ArmToRun> arms, const ForcedOptions& options, RecordLog& log,
                     Progress& progress);

}  // namespace kv
