#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/scales/export_scales.h"
#include "cli/engine_python.h"
#include "cli/scale_args.h"
#include "cli/scale_source.h"
#include "cli/scale_text.h"
#include "kvscale/error.h"
#include "targets/verify.h"

namespace kv::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string target_of(const VerifyArgs& args, const ScaleSet& set) {
  if (!args.target.empty()) return args.target;
  if (set.record) return set.record->target;
  throw ValueError(fmt::format("{}: no {} says for which engine it was written: give --for",
                               set.path.string(), kExportRecordFile));
}

// Scales of a file that the directory must hold, as an export would have written them.
std::vector<ExportedScale> declared_by(const VerifyArgs& args, const ScaleSet& set) {
  if (args.against.empty()) return set.record ? set.record->scales : std::vector<ExportedScale>{};
  const bool per_head = std::ranges::any_of(set.scales, [](const StoredScale& scale) {
    return scale.side == ScaleSide::kK && scale.values.size() > 1;
  });
  ScaleChoice choice;
  choice.per_head = per_head;
  choice.reduce_max = is_scale_file(args.against);
  choice.exact = set.record && set.record->rounding == "none";
  return scales_for_export(read_scale_source(args.against), choice);
}

// What counts of a held scale: the number beside the tensor where the rules say that one number
// does.
std::vector<float> effective(const HeldScale& held, const std::vector<float>& expected) {
  if (expected.size() == 1 && held.number) return {*held.number};
  return held.values;
}

void check_engine_side(const EngineReading& reading, int layer, char side,
                       const SideOutcome& expected, Verification& v) {
  if (expected.how == "16-bit") return;
  const std::string where = fmt::format("layer {} {}", layer, side);
  const auto held = reading.scales.find({layer, side});
  if (held == reading.scales.end()) {
    v.findings.push_back({"engine", where, reading.loader + " holds no scale", Severity::kBroken});
    return;
  }
  const std::vector<float> values = effective(held->second, expected.ranks.at(0));
  if (values == expected.ranks[0]) return;
  v.findings.push_back({"engine", where,
                        fmt::format("{} holds {}, its rules say {}", reading.loader,
                                    short_values(values), short_values(expected.ranks[0])),
                        Severity::kBroken});
}

void check_engine(const EngineReading& reading, Verification& v) {
  for (const LayerOutcome& layer : v.observed.layers) {
    check_engine_side(reading, layer.layer, 'k', layer.k, v);
    check_engine_side(reading, layer.layer, 'v', layer.v, v);
  }
  if (std::ranges::any_of(v.findings, [](const auto& f) { return f.id == "engine"; })) {
    v.verdict = "contradicted";
  }
}

Json json_declared(const std::vector<ExportedScale>& scales) {
  Json out = Json::array();
  for (const ExportedScale& scale : scales) {
    out.push_back({{"layer", scale.layer},
                   {"side", std::string(1, scale.side)},
                   {"values", json_values(scale.used)}});
  }
  return out;
}

void print(const VerifyArgs& args, const Verification& v,
           const std::optional<EngineReading>& engine) {
  if (args.json) {
    Json out = {{"declared", json_declared(v.declared)},  {"observed", json_dry_run(v.observed)},
                {"fingerprint", Json::array()},           {"warnings", json_warnings(v.findings)},
                {"loader", engine ? engine->loader : ""}, {"verdict", v.verdict}};
    fmt::print("{}\n", out.dump(1));
    return;
  }
  fmt::print("{}: {}\n", args.path, v.verdict);
  fmt::print("{} scales declared; {} {} would hold {} layers: {}\n", v.declared.size(),
             v.observed.target, v.observed.version, v.observed.layers.size(),
             v.observed.starts ? std::string(name(v.observed.outcome)) : v.observed.refusal);
  if (engine) fmt::print("its own loader ({}) held the same\n", engine->loader);
  fmt::print("{}", warnings_text(v.findings));
  if (v.verdict == "not_provable" && v.declared.empty()) {
    fmt::print("nothing is declared that it could be held against: give --against\n");
  }
}

}  // namespace

int run_verify(const VerifyArgs& args) {
  const ScaleSet set = read_scales(args.path);
  const DryRunRequest request{target_of(args, set), args.version, static_cast<int>(args.tp)};
  Verification v = verify(set, declared_by(args, set), request);
  if (args.hash) {
    const size_t before = v.findings.size();
    check_model_hash(set, v.findings);
    for (size_t i = before; i < v.findings.size(); ++i) {
      if (v.findings[i].severity == Severity::kBroken) v.verdict = "contradicted";
    }
  }
  // Without a record and without a file nothing was promised that could be proven.
  if (v.verdict == "proven" && v.declared.empty() && !set.record) v.verdict = "not_provable";
  std::optional<EngineReading> engine;
  if (!args.engine_python.empty()) {
    const std::string name(find_target(request.target).engine);
    engine = read_with_engine(args.engine_python, name, std::filesystem::absolute(args.path));
    check_engine(*engine, v);
  }
  print(args, v, v.verdict == "proven" ? engine : std::nullopt);
  if (v.verdict == "proven") return kExitAccept;
  return v.verdict == "not_provable" ? kExitInconclusive : kExitReject;
}

}  // namespace kv::cli
