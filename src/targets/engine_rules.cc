#include "targets/engine_rules.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <charconv>
#include <vector>

#include "kvscale/error.h"

namespace kv {
namespace {

constexpr std::array<const EngineRules*, 6> kAll = {&kVllmRules,        &kSglangRules,
                                                    &kTensorRtLlmRules, &kTensorRtLlmLegacyRules,
                                                    &kEdgeLlmRules,     &kLlamaServerRules};

std::vector<int> numbers_of(std::string_view version) {
  std::vector<int> numbers;
  const char* at = version.data();
  const char* const end = at + version.size();
  while (true) {
    int number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || (stop != end && *stop != '.')) {
      throw ValueError(
          fmt::format("version: expected numbers between dots, as 0.32.0, found \"{}\"", version));
    }
    numbers.push_back(number);
    if (stop == end) return numbers;
    at = stop + 1;
  }
}

}  // namespace

int compare_versions(std::string_view a, std::string_view b) {
  std::vector<int> x = numbers_of(a), y = numbers_of(b);
  x.resize(std::max(x.size(), y.size()));
  y.resize(x.size());
  if (x == y) return 0;
  return x < y ? -1 : 1;
}

const EngineRules& engine_rules(std::string_view engine) {
  std::vector<std::string_view> known;
  for (const EngineRules* rules : kAll) {
    if (rules->engine == engine) return *rules;
    known.push_back(rules->engine);
  }
  throw ValueError(
      fmt::format("engine: expected one of {}, found \"{}\"", fmt::join(known, ", "), engine));
}

const EngineRule& find_rule(const EngineRules& rules, DirectoryKind kind,
                            std::string_view version) {
  for (const EngineRule& rule : rules.rows) {
    if (rule.kind != kind) continue;
    if (!rule.since.empty() && compare_versions(version, rule.since) < 0) continue;
    if (!rule.until.empty() && compare_versions(version, rule.until) >= 0) continue;
    return rule;
  }
  throw UnsupportedError(fmt::format("{} {}: nothing is known of what it does with: {}",
                                     rules.engine, version, name(kind)));
}

std::string_view name(LoadOutcome outcome) {
  switch (outcome) {
    case LoadOutcome::kUsed:
      return "used";
    case LoadOutcome::kDefaults:
      return "scale 1.0";
    case LoadOutcome::kIgnored:
      return "ignored";
    case LoadOutcome::kRefused:
      return "refused";
    case LoadOutcome::kUnknown:
      return "not known";
  }
  return "";
}

std::string_view name(Basis basis) {
  switch (basis) {
    case Basis::kExecuted:
      return "executed";
    case Basis::kRead:
      return "read";
    case Basis::kInferred:
      return "inferred";
  }
  return "";
}

}  // namespace kv
