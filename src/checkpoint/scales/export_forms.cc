#include "checkpoint/scales/export_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/hf_config.h"
#include "checkpoint/scales/edge_onnx.h"
#include "checkpoint/scales/safetensors_writer.h"
#include "checkpoint/scales/sglang_json.h"
#include "kvscale/error.h"
#include "tensor/mapped_file.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kRewritten = {
    "config.json", "model.safetensors.index.json", "hf_quant_config.json", "README.md",
    kExportRecordFile};

bool ends_in_one_of(const std::string& name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view e) { return name.ends_with(e); });
}

std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

const ExportedScale* find_scale(const ExportRecord& record, int layer, char side) {
  const auto found = std::ranges::find_if(record.scales, [&](const ExportedScale& scale) {
    return scale.layer == layer && scale.side == side;
  });
  return found == record.scales.end() ? nullptr : &*found;
}

// The names of TensorRT-LLM's own layers, without what a rank adds.
std::vector<SafetensorsEntry> shared_tensors(const ExportRequest& request, const ScaleSet& model) {
  std::vector<SafetensorsEntry> tensors;
  for (const int layer : model.owner_layers) {
    const float scale = request.record.scales.empty() ? 1.0f : shared_scale(request, layer);
    tensors.push_back(
        {fmt::format("transformer.layers.{}.attention.kv_cache_scaling_factor", layer),
         {1},
         {scale}});
  }
  return tensors;
}

// Puts a number where another stands in the graph.
void put_number(std::string& graph, size_t offset, float value) {
  std::memcpy(graph.data() + offset, &value, sizeof value);
}

float one_scale(const ExportRequest& request, int layer, char side) {
  const ExportedScale* scale = find_scale(request.record, layer, side);
  if (scale != nullptr && scale->used.size() == 1) return scale->used[0];
  throw ValueError(
      fmt::format("form {}: layer {} {}: the graph has attention there: expected one "
                  "scale per tensor, found {}",
                  name(request.form), layer, side, scale == nullptr ? 0 : scale->used.size()));
}

// The graph with the request's scales; `layers` gets the layers that it has.
std::string graph_with(const ExportRequest& request, const fs::path& path, std::set<int>& layers) {
  const MappedFile file(path);
  const std::span<const uint8_t> bytes = file.bytes();
  std::string graph(bytes.begin(), bytes.end());
  for (const EdgeOnnxScales& scales : edge_onnx_scales(bytes, path.filename().string())) {
    if (!layers.insert(scales.layer).second) {
      throw FormatError(fmt::format("{}: {}: a second attention node of layer {}",
                                    path.filename().string(), scales.tensor, scales.layer));
    }
    const size_t count = scales.offsets.size();
    put_number(graph, scales.offsets[count - 2], one_scale(request, scales.layer, 'k'));
    put_number(graph, scales.offsets[count - 1], one_scale(request, scales.layer, 'v'));
  }
  return graph;
}

}  // namespace

float shared_scale(const ExportRequest& request, int layer) {
  const ExportedScale* k = find_scale(request.record, layer, 'k');
  const ExportedScale* v = find_scale(request.record, layer, 'v');
  if (k != nullptr && v != nullptr && k->used.size() == 1 && k->used == v->used) return k->used[0];
  throw ValueError(
      fmt::format("form {}: layer {}: expected one scale, the same for K and V; the form has one "
                  "per layer of the model",
                  name(request.form), layer));
}

void write_card(const ExportRequest& request, const ExportFolder& folder) {
  const fs::path card = request.model / "README.md";
  const std::string before = fs::exists(card) ? read_text_file(card) + "\n" : "";
  folder.write("README.md", before + request.card);
}

void add_other_files(const ExportRequest& request, std::span<const std::string_view> endings,
                     const ExportFolder& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(request.model)) {
    const std::string file = entry.path().filename().string();
    const bool is_rewritten = std::ranges::find(kRewritten, file) != kRewritten.end();
    if (!entry.is_regular_file() || is_rewritten || file.starts_with(".")) continue;
    if (!ends_in_one_of(file, endings)) folder.add(entry.path(), file, request.copy);
  }
}

void export_sglang_json(ExportRequest& request, const ScaleSet& model) {
  std::vector<float> layers;
  for (int layer = 0; layer < model.geometry.num_layers; ++layer) {
    layers.push_back(shared_scale(request, model.cache_layer(layer)));
  }
  request.record.shards = shards_of(request.model);
  ExportFolder folder(request.out);
  folder.write("kv_cache_scales.json",
               sglang_json_text(model.geometry.model_type,
                                std::vector(static_cast<size_t>(request.tp), layers)));
  folder.write(kExportRecordFile, export_record_text(request.record));
  folder.write("README.md", request.card);
  folder.finish();
}

void export_tensorrt_llm(ExportRequest& request, const ScaleSet& model) {
  const std::vector<fs::path> ranks = sorted_files(request.model, ".safetensors");
  if (model.declared.family != ScaleFamily::kTensorRtLlm || ranks.empty()) {
    throw ValueError(
        fmt::format("{}: form tensorrt-llm-legacy: expected a checkpoint that TensorRT-LLM's own "
                    "scripts converted (config.json with architecture and quantization, "
                    "rank*.safetensors)",
                    request.model.string()));
  }
  nlohmann::json config = parse_json(read_text_file(request.model / "config.json"), "config.json");
  config["quantization"]["kv_cache_quant_algo"] = "FP8";
  const std::vector<SafetensorsEntry> tensors = shared_tensors(request, model);
  ExportFolder folder(request.out);
  for (const fs::path& rank : ranks) {
    copy_safetensors_with(rank, tensors, folder.path() / rank.filename());
  }
  folder.write("config.json", config.dump(2) + "\n");
  add_other_files(request, std::array<std::string_view, 1>{".safetensors"}, folder);
  write_card(request, folder);
  request.record.shards = shards_of(folder.path());
  folder.write(kExportRecordFile, export_record_text(request.record));
  folder.finish();
}

void export_edge_onnx(ExportRequest& request, const ScaleSet& model) {
  if (model.declared.family != ScaleFamily::kEdgeOnnx || !model.declared.has_kv) {
    throw ValueError(fmt::format(
        "{}: form edge-onnx: expected graphs that TensorRT Edge-LLM exported with an FP8 KV cache "
        "(attention nodes with k_v_scale_quant_orig or qkv_scales)",
        request.model.string()));
  }
  ExportFolder folder(request.out);
  std::set<int> layers;
  for (const fs::path& graph : sorted_files(request.model, ".onnx")) {
    folder.write(graph.filename().string(), graph_with(request, graph, layers));
  }
  for (const ExportedScale& scale : request.record.scales) {
    if (layers.contains(scale.layer)) continue;
    throw ValueError(
        fmt::format("{}: layer {}: expected an attention node with a place for scales, found none",
                    request.model.string(), scale.layer));
  }
  for (const char* file : {"config.json", "hf_quant_config.json"}) {
    if (fs::exists(request.model / file)) folder.add(request.model / file, file, request.copy);
  }
  add_other_files(request, std::array<std::string_view, 1>{".onnx"}, folder);
  write_card(request, folder);
  folder.write(kExportRecordFile, export_record_text(request.record));
  folder.finish();
}

}  // namespace kv
