#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/scale_text.h"

namespace kv::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_side(const SideOutcome& side) {
  OrderedJson ranks = OrderedJson::array();
  for (const std::vector<float>& values : side.ranks) ranks.push_back(json_values(values));
  return {{"how", side.how}, {"ranks", std::move(ranks)}};
}

OrderedJson json_scale(const StoredScale& scale) {
  OrderedJson out = {{"layer", scale.layer},
              {"side", std::string(name(scale.side))},
              {"values", json_values(scale.values)},
              {"shape", scale.shape},
              {"dtype", scale.dtype},
              {"file", scale.file},
              {"tensor", scale.tensor},
              {"spelling", scale.spelling}};
  if (scale.is_shared) out["shared"] = true;
  if (scale.rank >= 0) out["rank"] = scale.rank;
  return out;
}

OrderedJson json_layers(const ScaleSet& set) {
  OrderedJson shared = OrderedJson::array();
  for (int layer = 0; layer < set.geometry.num_layers; ++layer) {
    const int owner = set.cache_layer(layer);
    if (owner != layer) shared.push_back({{"layer", layer}, {"reads", owner}});
  }
  return shared;
}

}  // namespace

OrderedJson json_values(const std::vector<float>& values) {
  OrderedJson out = OrderedJson::array();
  for (const float v : values) {
    if (std::isfinite(v)) {
      out.push_back(v);
    } else {
      out.push_back(std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    }
  }
  return out;
}

OrderedJson json_warnings(const std::vector<ScaleWarning>& warnings) {
  OrderedJson out = OrderedJson::array();
  for (const ScaleWarning& w : warnings) {
    const char* severity = w.severity == Severity::kBroken     ? "broken"
                           : w.severity == Severity::kDoubtful ? "doubtful"
                                                               : "note";
    out.push_back({{"id", w.id}, {"where", w.where}, {"text", w.text}, {"severity", severity}});
  }
  return out;
}

OrderedJson json_inspection(const ScaleSet& set, const Diagnosis& diagnosis) {
  const KvDeclaration& d = set.declared;
  OrderedJson out = {{"path", set.path.string()},
              {"format", std::string(name(d.family))},
              {"declared",
               {{"source", d.source},
                {"algorithm", d.kv_algorithm},
                {"strategy", d.strategy},
                {"observer", d.observer},
                {"version", d.version}}},
              {"layers", set.geometry.num_layers},
              {"kv_heads", set.geometry.num_kv_heads},
              {"head_dim", set.geometry.head_dim},
              {"shared_layers", json_layers(set)},
              {"summary", diagnosis.summary},
              {"scales", OrderedJson::array()},
              {"unread", OrderedJson::array()},
              {"warnings", json_warnings(diagnosis.warnings)},
              {"risk", {{"level", diagnosis.risk.level}, {"text", diagnosis.risk.text}}},
              {"notes", set.notes},
              {"health", std::string(diagnosis.health())}};
  for (const StoredScale& scale : set.scales) out["scales"].push_back(json_scale(scale));
  for (const UnreadScale& u : set.unread) {
    out["unread"].push_back({{"file", u.file}, {"tensor", u.tensor}, {"why", u.why}});
  }
  return out;
}

OrderedJson json_dry_run(const DryRun& run) {
  OrderedJson out = {{"target", run.target},
              {"version", run.version},
              {"directory", std::string(name(run.kind))},
              {"outcome", std::string(name(run.outcome))},
              {"starts", run.starts},
              {"refusal", run.refusal},
              {"auto_dtype", run.auto_dtype},
              {"flag", run.flag},
              {"message", run.message},
              {"basis", run.basis},
              {"source", run.source},
              {"layers", OrderedJson::array()},
              {"notes", run.notes},
              {"warnings", json_warnings(run.warnings)}};
  for (const LayerOutcome& layer : run.layers) {
    out["layers"].push_back({{"layer", layer.layer},
                             {"reads", layer.reads_layer},
                             {"k", json_side(layer.k)},
                             {"v", json_side(layer.v)}});
  }
  return out;
}

}  // namespace kv::cli
