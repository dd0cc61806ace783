#pragma once

// Directories with scales for tests, built by hand so that a test can lie.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/checkpoint/fixtures.h"

namespace kv::fixtures {

inline constexpr std::string_view kCtTensor =
    R"({"quant_method":"compressed-tensors","version":"0.18.0","format":"dense","config_groups":{},
        "kv_cache_scheme":{"num_bits":8,"type":"float","strategy":"tensor","symmetric":true,
                           "dynamic":false,"observer":"static_minmax"}})";

inline constexpr std::string_view kProfileB =
    R"({"quant_method":"modelopt","quant_algo":"FP8","ignore":["*"],"config_groups":{},
        "kv_cache_scheme":{"dynamic":false,"num_bits":8,"type":"float"}})";

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("fixture: no " + std::string(from));
  return text.replace(at, from.size(), to);
}

/// A model of some layers with 2 KV heads of 64 out of 4 query heads, weights only as names.
class ScaleFolder {
 public:
  explicit ScaleFolder(int num_layers = 4) : num_layers_(num_layers) {
    for (int layer = 0; layer < num_layers; ++layer) weight(layer);
  }

  const std::filesystem::path& path() const { return folder_->path(); }

  std::string module(int layer) const {
    return "model.layers." + std::to_string(layer) + ".self_attn";
  }
  void weight(int layer) { tensor(module(layer) + ".k_proj.weight", "BF16", {2, 2}, {1, 2, 3, 4}); }

  void tensor(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
              const std::vector<float>& values) {
    std::string data = encoded(values, dtype);
    if (dtype == "F64") {
      for (const float v : values) append(data, static_cast<double>(v));
    }
    if (dtype == "F8_E4M3") {
      for (const float v : values) append(data, static_cast<uint8_t>(v));
    }
    shard.tensors.push_back({name, dtype, shape, data});
  }

  /// One K and one V scale per layer under `k` and `v` after "model.layers.N.".
  void scales(const std::string& k, const std::string& v, const std::string& dtype = "F32",
              const std::vector<int64_t>& shape = {1}) {
    for (int layer = 0; layer < num_layers_; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      size_t count = 1;
      for (const int64_t size : shape) count *= static_cast<size_t>(size);
      tensor(prefix + k, dtype, shape, std::vector<float>(count, k_scale(layer)));
      tensor(prefix + v, dtype, shape, std::vector<float>(count, v_scale(layer)));
    }
  }
  static float k_scale(int layer) { return 0.25f + 0.125f * static_cast<float>(layer); }
  static float v_scale(int layer) { return 0.0625f + 0.03125f * static_cast<float>(layer); }

  void erase(const std::string& name) {
    std::erase_if(shard.tensors, [&](const auto& tensor) { return tensor.name == name; });
  }

  std::string config(std::string_view quantization = "", std::string_view more = "") const {
    std::string text =
        R"({"model_type":"llama","dtype":"bfloat16","num_attention_heads":4,)"
        R"("num_key_value_heads":2,"head_dim":64,"hidden_size":256,)"
        R"("max_position_embeddings":4096,"rope_theta":10000.0,"num_hidden_layers":)" +
        std::to_string(num_layers_);
    if (!quantization.empty()) text += ",\"quantization_config\":" + std::string(quantization);
    return text + std::string(more) + "}";
  }

  /// Writes config.json and model.safetensors.
  void write(std::string_view quantization = "", std::string_view more = "") const {
    write_file(path() / "config.json", config(quantization, more));
    write_file(path() / "model.safetensors", shard.bytes());
  }

  SafetensorsWriter shard;

 private:
  int num_layers_;
  std::shared_ptr<ScratchFolder> folder_ = std::make_shared<ScratchFolder>();  // movable
};

}  // namespace kv::fixtures
