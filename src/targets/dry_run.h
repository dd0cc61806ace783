#pragma once

#include <string>
#include <vector>

#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/scale_set.h"
#include "targets/engine_rules.h"
#include "targets/targets.h"

namespace kv {

/// Which engine would load a directory, and how.
struct DryRunRequest {
  std::string target;   // "vllm", "vllm:cpu", "sglang", ...
  std::string version;  // empty: the one that the table holds for
  int tp = 1;           // tensor-parallel ranks
};

/// What one side of one layer ends up with.
struct SideOutcome {
  /// "used", "shared" (the other side's number), "largest head", "default 1.0", "ignored", "16-bit"
  std::string how;
  std::vector<std::vector<float>> ranks;  // per rank: one number, or one per head of that rank
};

struct LayerOutcome {
  int layer = 0;
  int reads_layer = 0;  // whose cache it reads; itself, but for sharing layers
  SideOutcome k, v;
};

/// What an engine would do with a directory.
struct DryRun {
  std::string target, version;
  DirectoryKind kind = DirectoryKind::kPlain;
  LoadOutcome outcome = LoadOutcome::kUnknown;
  bool starts = true;
  std::string refusal;     // why it does not start, or what it says
  std::string auto_dtype;  // what the cache dtype "auto" becomes
  std::string flag;        // what must be passed for an FP8 cache
  std::string message;     // what the engine says; empty: nothing
  std::string basis;       // "executed", "read", "inferred"
  std::string source;
  std::vector<LayerOutcome> layers;
  std::vector<std::string> notes;
  std::vector<ScaleWarning> warnings;  // those that depend on the engine
};

/// Follows the engine's own rules over the scales. A version newer than the rules is taken to do
/// what they say; a note and the basis "inferred" say so. Throws ValueError for unknown names and
/// versions, UnsupportedError for a version of which nothing is known.
DryRun dry_run(const ScaleSet& set, const DryRunRequest& request);

/// The KV heads that each rank holds: equal parts, or one head on several ranks when there are more
/// ranks than heads. Throws ValueError when they do not divide.
std::vector<std::vector<int>> heads_of_ranks(int num_kv_heads, int tp);

/// The rule that fills one layer: which numbers of the file reach the kernels, after the engine's
/// own casts. Sets outcome and refusal of `run` when the engine gives up.
using LayerRule = LayerOutcome (*)(const ScaleSet& set, int layer, const TargetRow& row, int tp,
                                   DryRun& run);
LayerOutcome load_vllm_compressed_tensors(const ScaleSet& set, int layer, const TargetRow& row,
                                          int tp, DryRun& run);
LayerOutcome load_vllm_scalar(const ScaleSet& set, int layer, const TargetRow& row, int tp,
                              DryRun& run);
LayerOutcome load_sglang(const ScaleSet& set, int layer, const TargetRow& row, int tp, DryRun& run);
LayerOutcome load_edge_llm(const ScaleSet& set, int layer, const TargetRow& row, int tp,
                           DryRun& run);
LayerOutcome load_tensorrt_llm_legacy(const ScaleSet& set, int layer, const TargetRow& row, int tp,
                                      DryRun& run);

/// Warnings of the spec that depend on the engine.
void check_target(const ScaleSet& set, const TargetRow& row, DryRun& run);

}  // namespace kv
