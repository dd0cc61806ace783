#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/scale_table.h"
#include "engine/engine.h"
#include "evaluate/example.h"
#include "evaluate/record.h"
#include "evaluate/record_log.h"
#include "study/progress.h"

namespace kv {

/// An arm with the scales it runs with.
struct ArmToRun {
  ArmSpec spec;
  std::optional<ScaleTable> scales;
};

struct LogitPassOptions {
  std::string block;                  // goes into the records
  std::vector<int64_t> bucket_edges;  // of positions
  BatchPlan plan;
  bool with_amax = false;  // an AmaxRecord of every prompt, from the control
  // Above 0: the prompts' first so many tokens are given; what follows is scored, in buckets of
  // tokens since ("+64").
  int64_t given = 0;
};

/// Feeds every prompt through the control and all arms in lockstep and compares their logits at
/// every position that has a next token. Appends one LogitRecord per prompt, arm and bucket
/// ("BLOCK/logits/ARM/PROMPT/BUCKET"), the control's own included (KLD 0); prompts whose records
/// are there already are skipped. Records what each arm really was.
void run_logit_pass(const std::shared_ptr<const Model>& model, std::span<const Prompt> prompts,
                    std::span<const ArmToRun> arms, const LogitPassOptions& options, RecordLog& log,
                    Progress& progress);

/// Whether the log has the records of a prompt of this length under the control and all arms.
bool has_logits(const RecordLog& log, const Prompt& prompt, std::span<const ArmToRun> arms,
                const LogitPassOptions& options);

/// Appends what arms really were, as far as they ran and the log does not have it yet.
void record_facts(std::span<const ArmFacts> facts, RecordLog& log);

/// One arm's records summed over all prompts and positions.
ArmRecord summarize_arm(const RecordLog& log, const std::string& block, const std::string& arm);

}  // namespace kv
