#include "cli/scale_source.h"

#include <fmt/core.h>

#include <fstream>

#include "calibrate/calibration.h"
#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"

namespace kv::cli {
namespace {

void add_side(const Calibration& calibration, const ScaleTable& table, int layer, Side side,
              const std::string& file, ScaleSet& out) {
  const std::span<const float> heads = table.heads(layer, side);
  StoredScale scale;
  scale.layer = layer;
  scale.side = side == Side::kK ? ScaleSide::kK : ScaleSide::kV;
  scale.values.assign(heads.begin(), heads.end());
  scale.shape = {calibration.num_kv_heads};
  scale.dtype = "JSON";
  scale.file = file;
  scale.tensor = fmt::format("scales_per_head[{}].{}", layer, name(side));
  scale.spelling = "scales_per_head";
  out.scales.push_back(std::move(scale));
}

ScaleSet from_calibration(const std::filesystem::path& path) {
  const Calibration calibration = read_calibration(path);
  const ScaleTable table = calibration.scales(true);
  ScaleSet out;
  out.path = path;
  out.geometry.num_layers = static_cast<int>(calibration.num_layers);
  out.geometry.num_kv_heads = static_cast<int>(calibration.num_kv_heads);
  out.geometry.num_q_heads = out.geometry.num_kv_heads;
  out.declared.family = ScaleFamily::kScaleFile;
  out.declared.source = path.filename().string();
  out.declared.has_kv = out.declared.is_fp8 = true;
  out.declared.kv_algorithm = "FP8";
  out.declared.k_post_rope = true;
  out.notes.push_back(fmt::format("measured on {}: {} examples, {} tokens",
                                  calibration.source.prompts, calibration.source.examples,
                                  calibration.source.tokens));
  for (int layer = 0; layer < out.geometry.num_layers; ++layer) {
    out.owner_layers.push_back(layer);
    for (const Side side : kSides) {
      add_side(calibration, table, layer, side, path.filename().string(), out);
    }
  }
  for (const std::string& warning : calibration.warnings) out.notes.push_back(warning);
  return out;
}

}  // namespace

bool is_scale_file(const std::filesystem::path& path) {
  if (path.extension() != ".json" || !std::filesystem::is_regular_file(path)) return false;
  std::ifstream file(path);
  std::string head(200, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return head.find("\"kvscale-scales\"") != std::string::npos;
}

ScaleSet read_scale_source(const std::filesystem::path& path) {
  return is_scale_file(path) ? from_calibration(path) : read_scales(path);
}

void check_model_hash(const ScaleSet& set, std::vector<ScaleWarning>& out) {
  const std::string expected = set.record ? set.record->model_sha256 : "";
  if (expected.empty()) {
    out.push_back({"stale", set.path.string(),
                   "no record says which weights the scales were made for", Severity::kDoubtful});
    return;
  }
  const std::string found = Checkpoint::open(set.path)->content_sha256();
  if (found == expected) return;
  out.push_back({"stale", set.path.string(),
                 fmt::format("the scales were made for weights with SHA-256 {}, these have {}",
                             expected, found),
                 Severity::kBroken});
}

}  // namespace kv::cli
