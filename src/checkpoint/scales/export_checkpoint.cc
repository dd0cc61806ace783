#include "checkpoint/scales/export_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/hf_config.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scales/export_config.h"
#include "checkpoint/scales/export_folder.h"
#include "checkpoint/scales/export_forms.h"
#include "checkpoint/scales/safetensors_writer.h"
#include "checkpoint/scales/scale_set.h"
#include "checkpoint/scales/tensor_scan.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kSideFile = "hf_quant_config.json";
constexpr const char* kScaleShard = "model-kv-scales.safetensors";
constexpr std::array<std::string_view, 2> kWeightEndings = {".safetensors", ".index.json"};

struct FormName {
  ExportForm form;
  std::string_view text;
};

constexpr std::array<FormName, 5> kForms = {
    {{ExportForm::kCompressedTensors, "compressed-tensors"},
     {ExportForm::kModelOpt, "modelopt"},
     {ExportForm::kSglangJson, "sglang-json"},
     {ExportForm::kTensorRtLlmLegacy, "tensorrt-llm-legacy"},
     {ExportForm::kEdgeOnnx, "edge-onnx"}}};

// The scales must be the only ones: engines map several spellings to one parameter.
void expect_without_scales(const ScaleSet& model) {
  for (const StoredScale& scale : model.scales) {
    if (scale.side != ScaleSide::kK && scale.side != ScaleSide::kV) continue;
    throw ValueError(fmt::format("{}: {} holds KV scales already ({}): export from the base model",
                                 model.path.string(), scale.file, scale.tensor));
  }
}

// Tensors of one layer and side, named after the model's own attention module.
SafetensorsEntry scale_tensor(const ExportedScale& scale, const std::string& module,
                              ExportForm form) {
  SafetensorsEntry out;
  out.values = scale.used;
  if (form == ExportForm::kModelOpt) {
    out.name = fmt::format("{}.{}_proj.{}_scale", module, scale.side, scale.side);
    return out;  // shape []
  }
  out.name = fmt::format("{}.{}_scale", module, scale.side);
  const auto count = std::ssize(scale.used);
  out.shape = count == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{count, 1, 1};
  return out;
}

std::vector<SafetensorsEntry> scale_tensors(const ExportRequest& request) {
  const std::map<int, std::string> modules = attention_modules(request.model);
  std::vector<SafetensorsEntry> out;
  for (const ExportedScale& scale : request.record.scales) {
    const auto module = modules.find(scale.layer);
    if (module == modules.end()) {
      throw ValueError(fmt::format("{}: layer {}: the model has no attention projections there",
                                   request.model.string(), scale.layer));
    }
    if (request.form == ExportForm::kModelOpt && scale.used.size() != 1) {
      throw ValueError("form modelopt: expected one scale per tensor, found one per head");
    }
    out.push_back(scale_tensor(scale, module->second, request.form));
  }
  return out;
}

struct Shards {
  std::map<std::string, std::string> file_of;  // tensor -> file in the new folder
  uint64_t total_bytes = 0;
};

Json json_or_null(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  return parse_json(read_text_file(path), path.filename().string());
}

// The files that engines load: those that the index names, where there is one.
std::vector<std::string> loaded_files(const ExportRequest& request, const ScaleSet& model) {
  const Json index = json_or_null(request.model / kIndexFile);
  if (index.is_null()) return model.files.read;
  std::set<std::string> named;
  for (const auto& [tensor, file] : index.at("weight_map").items()) {
    named.insert(file.get<std::string>());
  }
  return {named.begin(), named.end()};
}

// Links the weights. A single file becomes the first of two shards.
Shards link_weights(const ExportRequest& request, const ScaleSet& model,
                    const ExportFolder& folder) {
  Shards out;
  const bool is_single = model.files.read.size() == 1 && model.files.read[0] == kSingleFile;
  for (const std::string& file : loaded_files(request, model)) {
    const std::string linked = is_single ? "model-00001-of-00002.safetensors" : file;
    folder.add(request.model / file, linked, request.copy);
    const SafetensorsFile shard(request.model / file);
    for (const StoredTensor& tensor : shard.tensors()) {
      out.file_of[tensor.name] = linked;
      out.total_bytes += tensor.bytes.size();
    }
  }
  return out;
}

void add_scale_shard(const std::vector<SafetensorsEntry>& tensors, bool is_single,
                     const ExportFolder& folder, Shards& shards) {
  if (tensors.empty()) return;
  const std::string file = is_single ? "model-00002-of-00002.safetensors" : kScaleShard;
  folder.write(file, safetensors_bytes(tensors, {{"format", "pt"},
                                                 {"kvscale.q_scale",
                                                  "none: queries are not "
                                                  "quantized by these scales"}}));
  for (const SafetensorsEntry& tensor : tensors) {
    shards.file_of[tensor.name] = file;
    shards.total_bytes += tensor.values.size() * sizeof(float);
  }
}

void write_index(const Shards& shards, const ExportFolder& folder) {
  const Json index = {{"metadata", {{"total_size", shards.total_bytes}}},
                      {"weight_map", shards.file_of}};
  folder.write(kIndexFile, index.dump(2) + "\n");
}

void write_configuration(const ExportRequest& request, const ScaleSet& model,
                         const ExportFolder& folder) {
  const bool per_head = request.record.layout == "fp8_head";
  const Json config = parse_json(read_text_file(request.model / "config.json"), "config.json");
  folder.write("config.json",
               config_with_kv(config, model.declared, request.form, per_head).dump(2) + "\n");
  const fs::path side = request.model / kSideFile;
  if (request.form == ExportForm::kModelOpt && model.declared.family != ScaleFamily::kFp8) {
    folder.write(kSideFile, side_file_with_kv(json_or_null(side)).dump(2) + "\n");
  } else if (fs::exists(side)) {
    folder.add(side, kSideFile, request.copy);
  }
}

}  // namespace

ExportForm export_form(std::string_view name) {
  std::vector<std::string_view> known;
  for (const FormName& row : kForms) {
    if (row.text == name) return row.form;
    known.push_back(row.text);
  }
  throw ValueError(
      fmt::format("form: expected one of {}, found \"{}\"", fmt::join(known, ", "), name));
}

std::string_view name(ExportForm form) {
  return std::ranges::find(kForms, form, &FormName::form)->text;
}

void export_checkpoint(ExportRequest request) {
  const ScaleSet model = read_scales(request.model);
  // A graph comes with places for scales, which are filled.
  if (request.form != ExportForm::kEdgeOnnx) expect_without_scales(model);
  if (model.geometry.is_mla) {
    throw ValueError(
        fmt::format("{}: the model caches a latent (kv_lora_rank): no form is known "
                    "that engines read its scales from",
                    request.model.string()));
  }
  request.record.rope = model.geometry.rope;
  if (request.form == ExportForm::kSglangJson) return export_sglang_json(request, model);
  if (request.form == ExportForm::kTensorRtLlmLegacy) return export_tensorrt_llm(request, model);
  if (request.form == ExportForm::kEdgeOnnx) return export_edge_onnx(request, model);
  if (model.files.read.empty()) {
    throw FormatError(
        fmt::format("{}: expected *.safetensors, found none", request.model.string()));
  }
  const std::vector<SafetensorsEntry> tensors = scale_tensors(request);
  const bool is_single = model.files.read.size() == 1 && model.files.read[0] == kSingleFile;
  ExportFolder folder(request.out);
  Shards shards = link_weights(request, model, folder);
  add_scale_shard(tensors, is_single, folder, shards);
  write_index(shards, folder);
  write_configuration(request, model, folder);
  // Tokenizer, templates, generation settings.
  add_other_files(request, kWeightEndings, folder);
  write_card(request, folder);
  request.record.shards = shards_of(folder.path());
  folder.write(kExportRecordFile, export_record_text(request.record));
  folder.finish();
}

}  // namespace kv
