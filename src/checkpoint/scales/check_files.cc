// Findings about what is there, what is declared, and whether the files belong together.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "checkpoint/scales/diagnose.h"

namespace kv {
namespace {

using Warnings = std::vector<ScaleWarning>;

size_t num_kv_scales(const ScaleSet& set) {
  return static_cast<size_t>(std::ranges::count_if(set.scales, [](const StoredScale& scale) {
    return scale.side == ScaleSide::kK || scale.side == ScaleSide::kV;
  }));
}

// Layers that kvscale left in 16 bit on purpose need no scale.
bool is_kept_16_bit(const ScaleSet& set, int layer) {
  return set.record &&
         std::ranges::find(set.record->bf16_layers, layer) != set.record->bf16_layers.end();
}

void check_missing(const ScaleSet& set, Warnings& out) {
  if (num_kv_scales(set) == 0) return;
  for (const int layer : set.owner_layers) {
    if (is_kept_16_bit(set, layer)) continue;
    const bool has_k = set.find(layer, ScaleSide::kK) != nullptr;
    const bool has_v = set.find(layer, ScaleSide::kV) != nullptr;
    if (has_k && has_v) continue;
    const char* sides = has_k ? "v" : has_v ? "k" : "k and v";
    out.push_back({has_k || has_v ? "missing-side" : "missing-layer",
                   fmt::format("layer {} {}", layer, sides),
                   "no scale in the checkpoint; vLLM's compressed-tensors path and SGLang then use "
                   "1.0 without a word, transformers uninitialised memory",
                   Severity::kBroken});
  }
}

void check_declared(const ScaleSet& set, Warnings& out) {
  const KvDeclaration& d = set.declared;
  const size_t found = num_kv_scales(set);
  const size_t expected = 2 * set.owner_layers.size();
  const bool wants_tensors = d.has_kv && !d.is_dynamic;
  if (wants_tensors && found == 0) {
    const bool may_be_cast =
        d.family == ScaleFamily::kModelOpt || d.family == ScaleFamily::kEdgeOnnx;
    const bool is_meant = set.record && set.record->layout == "fp8_scale1";
    out.push_back(
        {"declared-missing", d.source,
         fmt::format("declared, 0 of {} tensors: {}", expected,
                     may_be_cast ? "a _cast preset, or scales that were lost; engines use 1.0"
                                 : "engines use 1.0"),
         is_meant      ? Severity::kNote
         : may_be_cast ? Severity::kDoubtful
                       : Severity::kBroken});
  }
  // A method of its own creates the parameters whatever the configuration says of the cache.
  const bool loads_anyway = d.family == ScaleFamily::kFp8 || d.family == ScaleFamily::kModelOpt ||
                            d.family == ScaleFamily::kMistral || d.family == ScaleFamily::kEdgeOnnx;
  if (!d.has_kv && found > 0 && !loads_anyway) {
    out.push_back({"undeclared", d.source.empty() ? "config.json" : d.source,
                   fmt::format("{} tensors, nothing declared: vLLM 0.32 refuses to start, earlier "
                               "releases and SGLang drop them",
                               found),
                   Severity::kBroken});
  }
}

void check_index(const ScaleSet& set, Warnings& out) {
  for (const std::string& file : set.files.not_in_index) {
    out.push_back({"index", file,
                   "holds scales and is not named by the index: engines do not load it",
                   Severity::kBroken});
  }
  for (const std::string& tensor : set.files.index_lies) {
    out.push_back({"index", tensor, "the index places it in another file than it is in",
                   Severity::kDoubtful});
  }
  if (set.files.has_single_beside_index && !set.scales.empty()) {
    out.push_back({"split-index", "model.safetensors",
                   "lies beside an index: transformers reads it alone, and scales in other shards "
                   "stay uninitialised",
                   Severity::kDoubtful});
  }
}

void check_unread(const ScaleSet& set, Warnings& out) {
  if (set.unread.empty()) return;
  const UnreadScale& first = set.unread.front();
  out.push_back(
      {"unread", first.file,
       fmt::format("{} tensors look like KV scales and no reader takes them; the first is "
                   "{}: {}",
                   set.unread.size(), first.tensor, first.why),
       Severity::kDoubtful});
}

// The model beside scales that kvscale exported must be the one that they were exported with.
void check_record(const ScaleSet& set, Warnings& out) {
  if (!set.record || set.declared.family == ScaleFamily::kSglangJson)
    return;  // its model is elsewhere
  const ExportRecord& record = *set.record;
  if (!record.rope.empty() && record.rope != set.geometry.rope) {
    out.push_back({"rope-change", "config.json",
                   fmt::format("the rotation was {} when the scales were made and is {}: K's size "
                               "changes with it",
                               record.rope, set.geometry.rope),
                   Severity::kDoubtful});
  }
  std::map<std::string, ExportedShard> now;
  for (const ExportedShard& shard : shards_of(set.path)) now.emplace(shard.file, shard);
  for (const ExportedShard& shard : record.shards) {
    const auto found = now.find(shard.file);
    if (found != now.end() && found->second == shard) continue;
    out.push_back({"stale", shard.file,
                   found == now.end() ? "was there when the scales were exported and is gone"
                                      : "is not the file that the scales were exported with",
                   Severity::kBroken});
  }
}

}  // namespace

void check_files(const ScaleSet& set, Warnings& out) {
  check_missing(set, out);
  check_declared(set, out);
  check_index(set, out);
  check_unread(set, out);
  check_record(set, out);
}

}  // namespace kv
