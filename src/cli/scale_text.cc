#include "cli/scale_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/console.h"
#include "report/text_table.h"

namespace kv::cli {
namespace {

constexpr int kRed = 31, kYellow = 33, kGreen = 32;

int color_of(Severity severity) {
  return severity == Severity::kBroken ? kRed : severity == Severity::kDoubtful ? kYellow : 0;
}

std::string geometry_text(const ScaleSet& set) {
  const KvGeometry& g = set.geometry;
  if (g.num_layers == 0) return "the model's geometry is not known";
  return fmt::format("{}{} layers, {} KV heads of {}",
                     g.model_type.empty() ? "" : g.model_type + ", ", g.num_layers,
                     g.num_kv_heads == 0 ? "?" : std::to_string(g.num_kv_heads),
                     g.head_dim == 0 ? "?" : std::to_string(g.head_dim));
}

std::string declared_text(const KvDeclaration& d) {
  if (d.source.empty()) return "nothing is declared";
  std::string text = fmt::format("{} ({})", name(d.family), d.source);
  text += d.has_kv ? fmt::format(": KV {}{}{}", d.kv_algorithm,
                                 d.strategy.empty() ? "" : ", strategy " + d.strategy,
                                 d.is_dynamic ? ", dynamic" : "")
                   : ": nothing about the KV cache";
  if (!d.observer.empty()) text += ", observer " + d.observer;
  if (!d.version.empty()) text += ", version " + d.version;
  return text;
}

std::string cell(const ScaleSet& set, int layer, ScaleSide side) {
  const StoredScale* scale = set.find(layer, side);
  return scale == nullptr ? "-" : short_values(scale->values);
}

std::string layer_table(const ScaleSet& set) {
  std::map<int, const StoredScale*> layers;
  for (const StoredScale& scale : set.scales) layers.emplace(scale.layer, &scale);
  for (const int owner : set.owner_layers) layers.emplace(owner, nullptr);
  std::vector<std::vector<TextCell>> rows;
  for (const auto& [layer, first] : layers) {
    const bool has_scale = first != nullptr;
    rows.push_back({{std::to_string(layer), 0},
                    {cell(set, layer, ScaleSide::kK), 0},
                    {cell(set, layer, ScaleSide::kV), 0},
                    {has_scale ? first->dtype : "", 0},
                    {has_scale ? first->spelling : "no scale", has_scale ? 0 : kRed},
                    {has_scale ? first->file : "", 0}});
  }
  return text_table({{"layer", true, false},
                     {"K", true, false},
                     {"V", true, false},
                     {"dtype", false, false},
                     {"name", false, false},
                     {"file", false, true}},
                    rows, terminal_style());
}

std::string sharing_text(const ScaleSet& set) {
  std::string text;
  for (int layer = 0; layer < set.geometry.num_layers; ++layer) {
    const int owner = set.cache_layer(layer);
    if (owner == layer) continue;
    text += fmt::format("layer {} -> reads layer {} (k={}, v={})\n", layer, owner,
                        cell(set, owner, ScaleSide::kK), cell(set, owner, ScaleSide::kV));
  }
  return text;
}

std::string rank_text(const SideOutcome& side) {
  std::string text;
  for (size_t i = 0; i < side.ranks.size(); ++i) {
    const bool same = i > 0 && side.ranks[i] == side.ranks[0];
    if (same) continue;
    text += (text.empty() ? "" : " | ") + short_values(side.ranks[i]);
  }
  return text;
}

}  // namespace

std::string short_values(const std::vector<float>& values) {
  if (values.empty()) return "-";
  if (values.size() == 1) return fmt::format("{:.5g}", values[0]);
  const auto [least, most] = std::ranges::minmax(values);
  return fmt::format("{:.4g} .. {:.4g} ({})", least, most, values.size());
}

std::string warnings_text(const std::vector<ScaleWarning>& warnings) {
  constexpr size_t kMostOfOneId = 4;  // a broken writer breaks every layer in the same way
  std::map<std::string, size_t> shown;
  std::string text;
  for (const ScaleWarning& w : warnings) {
    if (++shown[w.id] > kMostOfOneId) continue;
    const TextStyle style = terminal_style();
    text += paragraph(colored(w.id, color_of(w.severity), style) + " " + w.where + ": " + w.text,
                      style, 2);
  }
  for (const auto& [id, count] : shown) {
    if (count > kMostOfOneId) {
      text += fmt::format("  {} more of {}; --json has them all\n", count - kMostOfOneId, id);
    }
  }
  return text;
}

std::string inspection_text(const ScaleSet& set, const Diagnosis& diagnosis) {
  const TextStyle style = terminal_style();
  const std::string health(diagnosis.health());
  const int color = health == "healthy" ? kGreen : health == "doubtful" ? kYellow : kRed;
  std::string text =
      fmt::format("{}: {}\n{}\n{}\n", set.path.string(), colored(health, color, style),
                  geometry_text(set), declared_text(set.declared));
  std::set<std::string> spellings;
  for (const StoredScale& scale : set.scales) spellings.insert(scale.spelling);
  text += diagnosis.summary + "\n";
  for (const std::string& spelling : spellings) text += "  named " + spelling + "\n";
  if (diagnosis.risk.level != "unknown") {
    text += paragraph(
        fmt::format("risk of FP8 keys: {} ({})", diagnosis.risk.level, diagnosis.risk.text), style);
  }
  if (!set.scales.empty()) text += "\n" + layer_table(set);
  text += sharing_text(set);
  if (!diagnosis.warnings.empty()) text += "\n" + warnings_text(diagnosis.warnings);
  for (const UnreadScale& u : set.unread) {
    text += fmt::format("UNREAD {} ({}): {}\n", u.tensor, u.file, u.why);
  }
  for (const std::string& note : set.notes) text += "note: " + note + "\n";
  return text;
}

std::string dry_run_text(const DryRun& run) {
  const TextStyle style = terminal_style();
  std::string text =
      fmt::format("{} {} with this directory ({}): {}\n", run.target, run.version, name(run.kind),
                  run.starts ? std::string(name(run.outcome)) : "does not start: " + run.refusal);
  text += fmt::format("cache dtype auto becomes {}{}\n", run.auto_dtype,
                      run.flag.empty() ? "" : "; for an FP8 cache pass " + run.flag);
  text += paragraph(
      run.message.empty() ? "it says nothing about the scales" : "it says: " + run.message, style);
  text += fmt::format("known as: {} ({})\n", run.basis, run.source);
  std::vector<std::vector<TextCell>> rows;
  for (const LayerOutcome& layer : run.layers) {
    const std::string reads =
        layer.reads_layer == layer.layer ? "" : fmt::format("reads layer {}", layer.reads_layer);
    rows.push_back({{std::to_string(layer.layer), 0},
                    {rank_text(layer.k), 0},
                    {layer.k.how, layer.k.how == "used" ? kGreen : kYellow},
                    {rank_text(layer.v), 0},
                    {layer.v.how, layer.v.how == "used" ? kGreen : kYellow},
                    {reads, 0}});
  }
  if (!rows.empty()) {
    text += "\n" + text_table({{"layer", true, false},
                               {"K", true, false},
                               {"", false, false},
                               {"V", true, false},
                               {"", false, false},
                               {"", false, true}},
                              rows, style);
  }
  if (!run.warnings.empty()) text += "\n" + warnings_text(run.warnings);
  for (const std::string& note : run.notes) text += paragraph("note: " + note, style);
  return text;
}

}  // namespace kv::cli
