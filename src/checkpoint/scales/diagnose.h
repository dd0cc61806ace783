#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/scales/scale_set.h"

namespace kv {

/// What a finding means for whoever serves the checkpoint.
enum class Severity : uint8_t {
  kNote,      // worth knowing
  kDoubtful,  // the scales may not be what they should be, or not every engine uses them
  kBroken     // an engine that loads this serves something else than was meant
};

struct ScaleWarning {
  std::string id;     // "missing-layer"
  std::string where;  // "layer 3 v", a file, or "config.json"
  std::string text;   // what it means, for a person
  Severity severity = Severity::kDoubtful;
};

/// How a model of this family usually takes an FP8 cache at scale 1, told from its small tensors.
struct RiskFlag {
  std::string level;  // "high", "low", "unknown"
  std::string text;
};

struct Diagnosis {
  std::string summary;  // "all 4 layers from checkpoint"
  std::vector<ScaleWarning> warnings;
  RiskFlag risk;

  /// "healthy", "doubtful" or "broken": the worst of the warnings.
  std::string_view health() const;
};

/// Examines scales on their own, without an engine in mind.
Diagnosis diagnose(const ScaleSet& set);

/// Findings about numbers, origin and files; diagnose() is all of them.
void check_values(const ScaleSet& set, std::vector<ScaleWarning>& out);
void check_origin(const ScaleSet& set, std::vector<ScaleWarning>& out);
void check_files(const ScaleSet& set, std::vector<ScaleWarning>& out);

/// "layer 3 v"
std::string place_of(const StoredScale& scale);

}  // namespace kv
