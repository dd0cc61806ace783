#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "checkpoint/scales/export_scales.h"
#include "cli/engine_python.h"
#include "cli/scale_args.h"
#include "cli/scale_source.h"
#include "cli/scale_text.h"
#include "kvscale/error.h"
#include "targets/verify.h"
#include "text/sha256.h"

namespace kv::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

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

// Over layer, side and bits of every declared scale, one a line.
std::string sha256_of(const std::vector<ExportedScale>& scales) {
  std::string text;
  for (const ExportedScale& scale : scales) {
    text += fmt::format("{} {}", scale.layer, scale.side);
    for (const float v : scale.used) text += fmt::format(" {:08x}", std::bit_cast<uint32_t>(v));
    text += '\n';
  }
  return sha256_hex(text);
}

// What the verdict is about: these weights, these scales, compared under these rules.
OrderedJson fingerprint_of(const VerifyArgs& args, const ScaleSet& set, const Verification& v) {
  const ExportRecord record = set.record.value_or(ExportRecord{});
  const bool has_model = !record.model_sha256.empty();
  std::string source = record.scale_source, source_sha256 = record.scale_sha256;
  if (!args.against.empty()) {
    const std::filesystem::path path = args.against;
    source = path.filename().string();
    source_sha256 = std::filesystem::is_regular_file(path) ? sha256_hex(read_text_file(path)) : "";
  }
  return {
      {"model_sha256", record.model_sha256},
      {"model_checked_by", args.hash && has_model   ? "contents"
                           : !record.shards.empty() ? "sizes and headers"
                                                    : "nothing"},
      {"scale_source", source},
      {"scale_source_sha256", source_sha256},
      {"scales_sha256", sha256_of(v.declared)},
      {"compared",
       {{"numbers", v.compared}, {"ranks", args.tp}, {"bf16_layers", record.bf16_layers}}},
      {"rules", fmt::format("{} {}, {}", v.observed.target, v.observed.version, v.observed.basis)}};
}

OrderedJson json_declared(const std::vector<ExportedScale>& scales) {
  OrderedJson out = OrderedJson::array();
  for (const ExportedScale& scale : scales) {
    out.push_back({{"layer", scale.layer},
                   {"side", std::string(1, scale.side)},
                   {"values", json_values(scale.used)}});
  }
  return out;
}

void print(const VerifyArgs& args, const Verification& v, const OrderedJson& fingerprint,
           const std::optional<EngineReading>& engine) {
  if (args.json) {
    OrderedJson out = {{"declared", json_declared(v.declared)},
                {"observed", json_dry_run(v.observed)},
                {"fingerprint", fingerprint},
                {"warnings", json_warnings(v.findings)},
                {"loader", engine ? engine->loader : ""},
                {"verdict", v.verdict}};
    fmt::print("{}\n", out.dump(1));
    return;
  }
  fmt::print("{}: {}\n", args.path, v.verdict);
  fmt::print("{} scales declared; {} {} would hold {} layers: {}\n", v.declared.size(),
             v.observed.target, v.observed.version, v.observed.layers.size(),
             v.observed.starts ? std::string(name(v.observed.outcome)) : v.observed.refusal);
  fmt::print("{} numbers compared; weights held against the record by {}; scales SHA-256 {}\n",
             v.compared, fingerprint.at("model_checked_by").get<std::string>(),
             fingerprint.at("scales_sha256").get<std::string>());
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
  print(args, v, fingerprint_of(args, set, v), v.verdict == "proven" ? engine : std::nullopt);
  if (v.verdict == "proven") return kExitAccept;
  return v.verdict == "not_provable" ? kExitInconclusive : kExitReject;
}

}  // namespace kv::cli
