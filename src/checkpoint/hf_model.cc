#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/hf_config.h"
#include "checkpoint/model_files.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::optional<Json> read_json_file(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  return parse_json(read_text_file(path), path.filename().string());
}

// A shard lies in the folder itself: an index must not lead elsewhere.
void expect_plain_name(const std::string& file, const std::string& tensor) {
  const bool plain = file.ends_with(".safetensors") && file.find('/') == std::string::npos &&
                     file.find('\\') == std::string::npos && file.find('\0') == std::string::npos;
  if (plain) return;
  throw FormatError(fmt::format(
      "{}: weight_map: tensor {:?}: expected a file name ending in .safetensors, found {:?}",
      kIndexFile, std::string_view(tensor).substr(0, 120), std::string_view(file).substr(0, 120)));
}

// Tensor -> shard, from the index.
std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const std::optional<Json> json = read_json_file(index);
  const JsonFields fields(json.value(), kIndexFile);
  std::map<std::string, std::string> shard_of;
  const JsonFields weight_map = fields.object("weight_map");
  for (const auto& [tensor, file] : fields.find("weight_map")->items()) {
    if (!file.is_string()) weight_map.fail(tensor, "a file name");
    expect_plain_name(file.get<std::string>(), tensor);
    shard_of.emplace(tensor, file.get<std::string>());
  }
  return shard_of;
}

void add_shard(const fs::path& path, ModelFiles& files) {
  files.shards.push_back(std::make_unique<SafetensorsFile>(path));
  for (const StoredTensor& tensor : files.shards.back()->tensors()) {
    if (files.tensors.emplace(tensor.name, tensor).second) continue;
    throw FormatError(fmt::format("{}: tensor {:?} is in another shard too",
                                  path.filename().string(),
                                  std::string_view(tensor.name).substr(0, 120)));
  }
}

void read_sharded(const fs::path& folder, ModelFiles& files) {
  const std::map<std::string, std::string> shard_of = read_weight_map(folder / kIndexFile);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shard_of) names.insert(shard);
  for (const std::string& shard : names) add_shard(folder / shard, files);
  for (const auto& [tensor, shard] : shard_of) {
    const auto found = files.tensors.find(tensor);
    const bool there = found != files.tensors.end() && found->second.file->path() == folder / shard;
    if (there) continue;
    throw FormatError(fmt::format("{}: weight_map: tensor {:?} is not in {}", kIndexFile,
                                  std::string_view(tensor).substr(0, 120), shard));
  }
}

void read_weights(const fs::path& folder, ModelFiles& files) {
  const bool has_single = fs::exists(folder / kSingleFile);
  const bool has_index = fs::exists(folder / kIndexFile);
  if (has_single && has_index) {
    throw FormatError(fmt::format("{}: both {} and {} are there; engines differ in which they read",
                                  files.label, kSingleFile, kIndexFile));
  }
  if (!has_single && !has_index) {
    throw FormatError(
        fmt::format("{}: expected {} or {}, found neither", files.label, kSingleFile, kIndexFile));
  }
  if (has_single) {
    add_shard(folder / kSingleFile, files);
  } else {
    read_sharded(folder, files);
  }
}

// Files of weights that no index names are silently passed over by engines: say so.
void note_stray_files(const fs::path& folder, ModelFiles& files) {
  std::vector<std::string> strays;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_read = std::any_of(files.shards.begin(), files.shards.end(),
                                     [&](const auto& shard) { return shard->file_name() == name; });
    if (name.ends_with(".safetensors") && !is_read) strays.push_back(name);
  }
  std::sort(strays.begin(), strays.end());
  for (const std::string& name : strays) {
    files.notes.push_back(fmt::format("{} is not read: {}", name,
                                      fs::exists(folder / kIndexFile)
                                          ? "the index does not name it"
                                          : "model.safetensors holds the weights"));
  }
}

void read_generation_config(const fs::path& folder, ModelSpec& spec) {
  const std::optional<Json> json = read_json_file(folder / "generation_config.json");
  if (!json) return;
  const JsonFields fields(*json, "generation_config.json");
  const std::vector<int> ids = fields.integers("eos_token_id", kTokenRange);
  if (!ids.empty()) spec.eos_ids = ids;  // the full list of stop ids, where config.json has one
}

// The template that is used unless a request names another.
std::string default_template(const JsonFields& tokenizer_config) {
  const Json* value = tokenizer_config.find("chat_template");
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) tokenizer_config.fail("chat_template", "a string or a list");
  for (const Json& item : *value) {
    const JsonFields named(item, tokenizer_config.file(), "chat_template.");
    if (named.text("name") == "default") return named.text("template").value_or("");
  }
  return "";
}

void read_tokenizer_config(const fs::path& folder, ModelFiles& files) {
  const std::optional<Json> json = read_json_file(folder / "tokenizer_config.json");
  if (json) {
    const JsonFields fields(*json, "tokenizer_config.json");
    files.spec.add_bos = fields.boolean("add_bos_token", false);
    files.chat_template = default_template(fields);
  }
  const fs::path jinja = folder / "chat_template.jinja";
  if (fs::exists(jinja)) files.chat_template = read_text_file(jinja);
}

void drop_repeats(std::vector<int32_t>& ids) {
  std::vector<int32_t> once;
  for (const int32_t id : ids) {
    if (std::find(once.begin(), once.end(), id) == once.end()) once.push_back(id);
  }
  ids = once;
}

Json read_config(const fs::path& folder) {
  std::optional<Json> config = read_json_file(folder / "config.json");
  if (config) return std::move(*config);
  std::string hint;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    hint = fmt::format("; found {}: name that file", entry.path().filename().string());
  }
  throw FormatError(
      fmt::format("{}: expected config.json, found none{}", folder.filename().string(), hint));
}

}  // namespace

ModelFiles read_hf_model(const fs::path& folder) {
  ModelFiles files;
  files.label = fs::weakly_canonical(folder).filename().string();
  const Json config = read_config(folder);
  const JsonFields fields(config, "config.json");
  refuse_quantized_weights(fields);
  const std::optional<Json> modelopt = read_json_file(folder / "hf_quant_config.json");
  if (modelopt) {
    refuse_quantized_weights_modelopt(JsonFields(*modelopt, "hf_quant_config.json"));
  }
  files.spec = read_hf_config(fields);
  if (files.spec.name.empty()) files.spec.name = files.label;
  read_generation_config(folder, files.spec);
  read_tokenizer_config(folder, files);
  drop_repeats(files.spec.eos_ids);
  validate(files.spec, "config.json");
  if (files.spec.rope.type == RopeType::kDynamic) {
    files.notes.push_back(
        "RoPE of type dynamic stretches nothing up to max_position_embeddings, as in transformers; "
        "engines that stretch every position store other keys");
  }
  read_weights(folder, files);
  note_stray_files(folder, files);
  return files;
}

}  // namespace kv
