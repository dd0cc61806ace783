#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/hf_config.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/scales/edge_onnx.h"
#include "checkpoint/scales/export_record.h"
#include "checkpoint/scales/scale_set.h"
#include "checkpoint/scales/sglang_json.h"
#include "checkpoint/scales/tensor_scan.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kIndexEnding = ".safetensors.index.json";

std::optional<Json> json_file(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  return parse_json(read_text_file(path), path.filename().string());
}

std::vector<fs::path> files_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

bool is_consolidated(const fs::path& path) {
  return path.filename().string().starts_with("consolidated");
}

// Tensor -> file, of every index; empty when there is none.
std::map<std::string, std::string> read_index(const fs::path& folder, bool with_consolidated) {
  std::map<std::string, std::string> file_of;
  for (const fs::path& path : files_ending(folder, kIndexEnding)) {
    if (is_consolidated(path) && !with_consolidated) continue;
    const std::string file = path.filename().string();
    const std::optional<Json> json = json_file(path);
    const JsonFields fields(*json, file);
    const JsonFields map = fields.object("weight_map");
    for (const auto& [tensor, shard] : fields.find("weight_map")->items()) {
      if (!shard.is_string()) map.fail(tensor, "a file name");
      file_of.emplace(tensor, shard.get<std::string>());
    }
  }
  return file_of;
}

void expect_named_files(const std::set<std::string>& named, const std::vector<fs::path>& files) {
  std::set<std::string> there;
  for (const fs::path& path : files) there.insert(path.filename().string());
  for (const std::string& name : named) {
    if (there.contains(name)) continue;
    throw FormatError(fmt::format("weight_map: {:?} is named by the index and is not there",
                                  name.substr(0, 120)));
  }
}

// Of Mistral's releases with both kinds of files only Hugging Face's are read, as engines do.
std::vector<fs::path> weight_files(const fs::path& folder, bool has_config, ScaleSet& out) {
  std::vector<fs::path> files = files_ending(folder, ".safetensors");
  const bool has_other =
      std::ranges::any_of(files, [](const auto& f) { return !is_consolidated(f); });
  if (has_config && has_other && std::erase_if(files, is_consolidated) > 0) {
    out.notes.emplace_back("consolidated files of Mistral's own format are passed over");
  }
  return files;
}

void note_index(const std::map<std::string, std::string>& file_of, ScaleSet& out) {
  std::set<std::string> named;
  for (const auto& [tensor, file] : file_of) named.insert(file);
  out.files.has_index = !file_of.empty();
  std::set<std::string> missed;
  for (const StoredScale& scale : out.scales) {
    if (!file_of.empty() && !named.contains(scale.file)) missed.insert(scale.file);
    const auto entry = file_of.find(scale.tensor);
    if (entry != file_of.end() && entry->second != scale.file) {
      out.files.index_lies.push_back(scale.tensor);
    }
  }
  out.files.not_in_index.assign(missed.begin(), missed.end());
  const bool has_single =
      std::ranges::find(out.files.read, "model.safetensors") != out.files.read.end();
  out.files.has_single_beside_index =
      out.files.has_index && has_single && out.files.read.size() > 1;
}

void read_safetensors(const std::vector<fs::path>& files, ScaleSet& out) {
  TensorScan scan(out);
  for (const fs::path& path : files) {
    const SafetensorsFile file(path);
    scan.add(file);
  }
  scan.finish();
}

KvGeometry geometry_of(const std::optional<Json>& config, const std::optional<Json>& params) {
  if (config) {
    const JsonFields fields(*config, "config.json");
    const bool is_tensorrt = fields.has("quantization") && fields.has("architecture");
    return is_tensorrt ? read_tensorrt_llm_geometry(fields) : read_kv_geometry(fields);
  }
  if (params) return read_kv_geometry(JsonFields(*params, "params.json"));
  return {};
}

void read_head(const fs::path& folder, ScaleSet& out) {
  const std::optional<Json> config = json_file(folder / "config.json");
  const std::optional<Json> side = json_file(folder / "hf_quant_config.json");
  const std::optional<Json> params = json_file(folder / "params.json");
  out.geometry = geometry_of(config, params);
  out.declared = read_declaration(config ? &*config : nullptr, side ? &*side : nullptr);
  if (!config && params && out.declared.family == ScaleFamily::kNone) {
    out.declared.family = ScaleFamily::kMistral;
  }
  out.record = read_export_record(folder);
}

ScaleSet read_folder(const fs::path& folder) {
  ScaleSet out;
  out.path = folder;
  read_head(folder, out);
  const bool has_config = fs::exists(folder / "config.json");
  const std::vector<fs::path> files = weight_files(folder, has_config, out);
  if (files.empty()) {
    const fs::path json = folder / "kv_cache_scales.json";
    if (!has_config && fs::exists(json)) {
      read_sglang_json(json, out);
      finish_scales(out);
      return out;
    }
    const std::vector<fs::path> graphs = files_ending(folder, ".onnx");
    if (!has_config && graphs.empty()) {
      throw FormatError(fmt::format(
          "{}: expected config.json and *.safetensors, or *.onnx, found none", folder.string()));
    }
    for (const fs::path& graph : graphs) read_edge_onnx(graph, out);
    finish_scales(out);
    return out;
  }
  const bool is_mistral = out.declared.family == ScaleFamily::kMistral;
  const std::map<std::string, std::string> file_of = read_index(folder, is_mistral);
  std::set<std::string> named;
  for (const auto& [tensor, file] : file_of) named.insert(file);
  expect_named_files(named, files);
  read_safetensors(files, out);
  note_index(file_of, out);
  return out;
}

}  // namespace

ScaleSet read_scales(const fs::path& path) {
  if (!fs::exists(path)) throw IoError(fmt::format("{}: not there", path.string()));
  if (fs::is_directory(path)) return read_folder(path);
  ScaleSet out;
  out.path = path;
  const std::string ending = path.extension().string();
  if (ending == ".json") {
    read_sglang_json(path, out);
    finish_scales(out);
  } else if (ending == ".onnx") {
    read_edge_onnx(path, out);
    finish_scales(out);
  } else if (ending == ".safetensors") {
    read_head(path.parent_path().empty() ? "." : path.parent_path(), out);
    read_safetensors({path}, out);
  } else {
    throw FormatError(fmt::format(
        "{}: expected a directory, .safetensors, .json or .onnx, found a file ending in {:?}",
        path.string(), ending));
  }
  return out;
}

}  // namespace kv
