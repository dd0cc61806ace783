#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "decide/divergence.h"
#include "evaluate/record.h"
#include "report/facts.h"
#include "report/text_style.h"

namespace kv {

/// Everything that `kvscale eval` measured on logits.
struct EvalReport {
  ModelFacts model;
  PromptFacts prompts;
  RunFacts run;
  std::vector<ArmRecord> arms;             // "bf16" among them; empty = summed up from the logits
  std::vector<LogitRecord> logits;         // per document and bucket
  std::vector<LogitRecord> forced;         // likewise, by tokens that BF16 generated; may be empty
  std::vector<CapacityRecord> capacities;  // by arm
  std::vector<DivergenceRow> divergence;   // where continuations were generated
  std::vector<std::string> notices;        // what a reader should know of the scales
  std::vector<std::string> alarms;         // arms whose logits ask for more examples
};

/// `arms[]` of `eval` and `scan`: arm, tokens, nll, kld, kld_se, same_top, and per `buckets[]` the
/// same from the logit records of that arm. kld_se is null with one document.
nlohmann::ordered_json arms_json(std::span<const ArmRecord> arms,
                                 std::span<const LogitRecord> logits,
                                 std::span<const CapacityRecord> capacities);

/// Arm records summed up from logit records, in the order in which arms first appear.
std::vector<ArmRecord> arms_of(std::span<const LogitRecord> logits);

/// One JSON object with `arms[]` and the facts.
std::string eval_json(const EvalReport& report);

/// A table of arms, and one of KLD by bucket. Lines are at most style.width columns wide.
std::string eval_text(const EvalReport& report, const TextStyle& style);

}  // namespace kv
