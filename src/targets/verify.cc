#include "targets/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kv {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, {}, [](float x) { return std::bit_cast<uint32_t>(x); },
      [](float x) { return std::bit_cast<uint32_t>(x); });
}

// What a rank should hold of one number, or of one per head.
std::vector<float> expected_of_rank(const ExportedScale& declared, int tp, size_t rank) {
  if (declared.used.size() == 1) return declared.used;
  const auto ranks = heads_of_ranks(static_cast<int>(declared.used.size()), tp);
  std::vector<float> values;
  for (const int head : ranks[rank]) values.push_back(declared.used[static_cast<size_t>(head)]);
  return values;
}

std::string values_text(const std::vector<float>& values) {
  std::string text;
  for (const float v : values) {
    text += fmt::format("{}{} (0x{:08x})", text.empty() ? "" : ", ", v, std::bit_cast<uint32_t>(v));
  }
  return text;
}

void compare(const ExportedScale& declared, const DryRun& run, int tp, Verification& out) {
  const std::string where = fmt::format("layer {} {}", declared.layer, declared.side);
  const auto found = std::ranges::find(run.layers, declared.layer, &LayerOutcome::layer);
  if (found == run.layers.end()) {
    out.findings.push_back(
        {"missing-layer", where, "the engine has no such layer", Severity::kBroken});
    return;
  }
  const SideOutcome& side = declared.side == 'k' ? found->k : found->v;
  if (side.how == "16-bit") return;
  for (size_t rank = 0; rank < side.ranks.size(); ++rank) {
    const std::vector<float> expected = expected_of_rank(declared, tp, rank);
    out.compared += expected.size();
    if (same_bits(expected, side.ranks[rank])) continue;
    out.findings.push_back({"differs", where,
                            fmt::format("declared {}, rank {} holds {} ({})", values_text(expected),
                                        rank, values_text(side.ranks[rank]), side.how),
                            Severity::kBroken});
    return;
  }
}

std::string verdict_of(const Verification& v) {
  Diagnosis all;
  all.warnings = v.findings;
  if (all.health() == "broken") return "contradicted";
  const bool is_known = v.observed.outcome == LoadOutcome::kUsed ||
                        (v.observed.outcome == LoadOutcome::kDefaults && v.declared.empty());
  return is_known ? "proven" : "not_provable";
}

}  // namespace

Verification verify(const ScaleSet& set, const std::vector<ExportedScale>& declared,
                    const DryRunRequest& request) {
  Verification out{declared, dry_run(set, request), {}, 0, ""};
  for (const ScaleWarning& warning : diagnose(set).warnings) {
    if (warning.severity == Severity::kBroken) out.findings.push_back(warning);
  }
  for (const ScaleWarning& warning : out.observed.warnings) out.findings.push_back(warning);
  if (out.observed.starts && out.observed.outcome != LoadOutcome::kUnknown) {
    for (const ExportedScale& one : declared) compare(one, out.observed, request.tp, out);
  }
  out.verdict = verdict_of(out);
  return out;
}

}  // namespace kv
