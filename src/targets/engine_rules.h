#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "targets/directory_kind.h"

namespace kv {

/// What an engine does with the scales of a kind of directory.
enum class LoadOutcome : uint8_t {
  kUsed,      // the stored numbers reach the kernels
  kDefaults,  // FP8 cache at scale 1.0
  kIgnored,   // the cache stays in 16 bit; forced to FP8 it runs at 1.0
  kRefused,   // the engine does not start
  kUnknown    // nobody has looked
};

/// How a row came to be known.
enum class Basis : uint8_t { kExecuted, kRead, kInferred };

/// One row of the table: engine, versions, kind of directory -> what happens.
struct EngineRule {
  DirectoryKind kind;
  std::string_view since, until;  // versions [since, until); empty: open
  LoadOutcome outcome;
  bool auto_is_fp8 = false;  // what cache dtype "auto" becomes
  std::string_view flag;     // what the user must pass for an FP8 cache; empty: nothing
  std::string_view message;  // what the engine says about it; empty: nothing
  Basis basis = Basis::kRead;
};

/// The rows of one engine, with the newest version that they were compared with.
struct EngineRules {
  std::string_view engine;
  std::string_view version;
  std::string_view source;  // what was read or run
  std::span<const EngineRule> rows;
};

/// Throws ValueError with the engines that exist.
const EngineRules& engine_rules(std::string_view engine);

/// The row that holds for a version. Throws UnsupportedError when no row does.
const EngineRule& find_rule(const EngineRules& rules, DirectoryKind kind, std::string_view version);

/// -1, 0, 1 for versions as "0.5.23": numbers between dots, a missing one is 0. Throws ValueError
/// for what is no such version.
int compare_versions(std::string_view a, std::string_view b);

std::string_view name(LoadOutcome outcome);
std::string_view name(Basis basis);

/// Rows by engine.
extern const EngineRules kVllmRules;
extern const EngineRules kSglangRules;
extern const EngineRules kTensorRtLlmRules;
extern const EngineRules kTensorRtLlmLegacyRules;
extern const EngineRules kEdgeLlmRules;
extern const EngineRules kLlamaServerRules;

}  // namespace kv
