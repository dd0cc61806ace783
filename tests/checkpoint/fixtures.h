#pragma once

// Writers of small files for tests: GGUF, safetensors, whole tiny models in either form. They are
// written against the formats' descriptions, not against the readers, and let a test lie.

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/architecture.h"
#include "checkpoint/model_spec.h"
#include "numeric/bf16.h"
#include "numeric/f16.h"

namespace kv::fixtures {

/// An empty folder that is gone with the object; in memory where that can be had, since tests
/// write thousands of small files.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = ::access(memory.c_str(), W_OK) == 0;
    const std::filesystem::path parent =
        has_memory ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "kvscale-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

template <class T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void append_text(std::string& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

/// Number of a GGUF value type; only what tests need.
enum GgufTypeNumber : uint32_t {
  kU32 = 4,
  kI32 = 5,
  kF32Value = 6,
  kBool = 7,
  kText = 8,
  kArray = 9
};

/// A GGUF file in pieces. Public members may be set to lies before bytes() is called.
class GgufWriter {
 public:
  struct Value {
    std::string key;
    uint32_t type;
    std::string payload;
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;  // as in PyTorch, the contiguous dimension last
    uint32_t type;               // 0 F32, 1 F16, 30 BF16, ...
    std::string data;
    std::optional<uint64_t> offset = std::nullopt;  // nullopt: after the tensor before
  };

  uint32_t version = 3;
  uint64_t alignment = 32;  // written as a key when it is not 32
  std::optional<uint64_t> num_values;
  std::optional<uint64_t> num_tensors;
  std::vector<Value> values;
  std::vector<Tensor> tensors;

  GgufWriter& set(std::string key, uint32_t type, std::string payload) {
    erase(key);
    values.push_back({std::move(key), type, std::move(payload)});
    return *this;
  }
  GgufWriter& set_u32(std::string key, uint32_t value) { return set_pod(key, kU32, value); }
  GgufWriter& set_f32(std::string key, float value) { return set_pod(key, kF32Value, value); }
  GgufWriter& set_bool(std::string key, bool value) { return set_pod(key, kBool, value); }
  GgufWriter& set_text(std::string key, std::string_view value) {
    std::string payload;
    append_text(payload, value);
    return set(std::move(key), kText, payload);
  }
  GgufWriter& set_texts(std::string key, const std::vector<std::string>& list) {
    std::string payload;
    append(payload, uint32_t{kText});
    append(payload, static_cast<uint64_t>(list.size()));
    for (const std::string& text : list) append_text(payload, text);
    return set(std::move(key), kArray, payload);
  }
  GgufWriter& set_integers(std::string key, const std::vector<int32_t>& list) {
    std::string payload;
    append(payload, uint32_t{kI32});
    append(payload, static_cast<uint64_t>(list.size()));
    for (const int32_t value : list) append(payload, value);
    return set(std::move(key), kArray, payload);
  }
  void erase(std::string_view key) {
    std::erase_if(values, [&](const Value& value) { return value.key == key; });
  }
  Tensor& tensor(std::string_view name) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + std::string(name));
  }
  void erase_tensor(std::string_view name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  }

  std::string bytes() const {
    std::string out = "GGUF";
    const bool has_alignment = alignment != 32;
    append(out, version);
    append(out, num_tensors.value_or(tensors.size()));
    append(out, num_values.value_or(values.size() + (has_alignment ? 1 : 0)));
    for (const Value& value : values) append_value(out, value);
    if (has_alignment) append_value(out, alignment_value());
    uint64_t end = 0;
    for (const Tensor& tensor : tensors) append_info(out, tensor, end);
    out.resize(padded(out.size()), '\0');
    const size_t data_begin = out.size();
    for (const Tensor& tensor : tensors) {
      if (!tensor.offset) out.resize(data_begin + padded(out.size() - data_begin), '\0');
      out += tensor.data;
    }
    return out;
  }

 private:
  template <class T>
  GgufWriter& set_pod(std::string key, uint32_t type, T value) {
    std::string payload;
    append(payload, value);
    return set(std::move(key), type, payload);
  }
  uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
  Value alignment_value() const {
    Value value{"general.alignment", kU32, ""};
    append(value.payload, static_cast<uint32_t>(alignment));
    return value;
  }
  static void append_value(std::string& out, const Value& value) {
    append_text(out, value.key);
    append(out, value.type);
    out += value.payload;
  }
  void append_info(std::string& out, const Tensor& tensor, uint64_t& end) const {
    append_text(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) append(out, tensor.shape[i]);
    append(out, tensor.type);
    append(out, tensor.offset.value_or(padded(end)));
    end = padded(end) + tensor.data.size();
  }
};

/// A safetensors file in pieces, tensors in the order they were added.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  // "F32", "BF16", ...
    std::vector<int64_t> shape;
    std::string data;
  };
  std::vector<Tensor> tensors;

  std::string header() const {
    std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
    size_t begin = 0;
    for (const Tensor& tensor : tensors) {
      std::string shape;
      for (const int64_t size : tensor.shape) {
        shape += (shape.empty() ? "" : ",") + std::to_string(size);
      }
      json += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(begin + tensor.data.size()) + "]}";
      begin += tensor.data.size();
    }
    json += "}";
    json.resize((json.size() + 7) / 8 * 8, ' ');
    return json;
  }
  std::string bytes() const {
    std::string data;
    for (const Tensor& tensor : tensors) data += tensor.data;
    return with_header(header(), data);
  }
  static std::string with_header(std::string_view header, std::string_view data) {
    std::string out;
    append_text(out, header);
    return out += data;
  }
};

/// Values in an element type: "F32", "F16" or "BF16", little endian.
inline std::string encoded(const std::vector<float>& values, std::string_view dtype) {
  std::string out;
  for (const float value : values) {
    if (dtype == "F32") append(out, value);
    if (dtype == "F16") append(out, f16::encode(value));
    if (dtype == "BF16") append(out, bf16::encode(value));
  }
  return out;
}

/// A model in memory: its specification and F32 weights by Hugging Face's names.
struct TinyModel {
  ModelSpec spec;
  std::map<std::string, std::vector<float>> weights;
};

/// Two layers of 4 query and 2 KV heads of 8, width 24 (not 4 * 8), 40 tokens.
inline ModelSpec tiny_spec(std::string architecture = "llama") {
  ModelSpec spec;
  spec.name = "tiny";
  spec.num_layers = 2;
  spec.hidden_size = 24;
  spec.intermediate_size = 40;
  spec.num_q_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.vocab_size = 40;
  spec.max_positions = 128;
  spec.rms_norm_eps = 1e-5;
  spec.bos_id = 1;
  spec.eos_ids = {2};
  spec.has_qkv_bias = architecture == "qwen2";
  spec.architecture = std::move(architecture);
  return spec;
}

/// Normal weights (norms around 1), all of them BF16 numbers that F16 holds too.
inline TinyModel make_tiny_model(const ModelSpec& spec, uint32_t seed) {
  TinyModel model{spec, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.25f);
  for (const RequiredTensor& tensor : required_tensors(spec)) {
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    std::vector<float>& values = model.weights[tensor.name];
    const bool is_norm = tensor.name.find("norm") != std::string::npos;
    for (size_t i = 0; i < count; ++i) {
      const float value = normal(random) + (is_norm ? 1.0f : 0.0f);
      values.push_back(bf16::decode(bf16::encode(f16::decode(f16::encode(value)))));
    }
  }
  return model;
}

/// config.json of the specification, without rope_scaling.
inline std::string hf_config(const ModelSpec& spec) {
  const bool is_llama = spec.architecture == "llama";
  std::ostringstream json;
  json << "{\"architectures\":[\"" << (is_llama ? "LlamaForCausalLM" : "Qwen2ForCausalLM")
       << "\"],\"model_type\":\"" << spec.architecture << "\",\"hidden_act\":\"silu\""
       << ",\"num_hidden_layers\":" << spec.num_layers << ",\"hidden_size\":" << spec.hidden_size
       << ",\"intermediate_size\":" << spec.intermediate_size
       << ",\"num_attention_heads\":" << spec.num_q_heads
       << ",\"num_key_value_heads\":" << spec.num_kv_heads << ",\"head_dim\":" << spec.head_dim
       << ",\"vocab_size\":" << spec.vocab_size
       << ",\"max_position_embeddings\":" << spec.max_positions
       << ",\"rms_norm_eps\":" << spec.rms_norm_eps << ",\"rope_theta\":" << spec.rope.theta
       << ",\"tie_word_embeddings\":" << (spec.tied_embeddings ? "true" : "false")
       << ",\"attention_bias\":" << (is_llama && spec.has_qkv_bias ? "true" : "false");
  if (spec.bos_id) json << ",\"bos_token_id\":" << *spec.bos_id;
  json << ",\"eos_token_id\":[";
  for (size_t i = 0; i < spec.eos_ids.size(); ++i) json << (i > 0 ? "," : "") << spec.eos_ids[i];
  json << "]}";
  return json.str();
}

inline SafetensorsWriter hf_weights(const TinyModel& model, const std::string& dtype = "BF16") {
  SafetensorsWriter writer;
  for (const RequiredTensor& tensor : required_tensors(model.spec)) {
    writer.tensors.push_back(
        {tensor.name, dtype, tensor.shape, encoded(model.weights.at(tensor.name), dtype)});
  }
  return writer;
}

/// A Hugging Face directory with config.json and model.safetensors.
inline void write_hf_model(const std::filesystem::path& folder, const TinyModel& model,
                           const std::string& dtype = "BF16") {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", hf_config(model.spec));
  write_file(folder / "model.safetensors", hf_weights(model, dtype).bytes());
}

/// Rows of Q or K as GGUF keeps them for architecture llama: of the two halves of a head, one row
/// each in turn.
inline std::vector<float> interleaved(const std::vector<float>& rows, int head_dim,
                                      size_t columns) {
  std::vector<float> out;
  const size_t head = static_cast<size_t>(head_dim) * columns;
  for (size_t begin = 0; begin < rows.size(); begin += head) {
    for (size_t pair = 0; pair < static_cast<size_t>(head_dim) / 2; ++pair) {
      for (size_t half = 0; half < 2; ++half) {
        const auto row =
            rows.begin() + static_cast<std::ptrdiff_t>(begin + half * head / 2 + pair * columns);
        out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(columns));
      }
    }
  }
  return out;
}

/// The model as a GGUF file: matrices of type `dtype`, vectors F32, as converters write them.
inline GgufWriter gguf_model(const TinyModel& model, const std::string& dtype = "F16") {
  const ModelSpec& spec = model.spec;
  const std::string a = spec.architecture + ".";
  GgufWriter writer;
  writer.set_text("general.architecture", spec.architecture).set_text("general.name", spec.name);
  writer.set_u32(a + "block_count", static_cast<uint32_t>(spec.num_layers));
  writer.set_u32(a + "context_length", static_cast<uint32_t>(spec.max_positions));
  writer.set_u32(a + "embedding_length", static_cast<uint32_t>(spec.hidden_size));
  writer.set_u32(a + "feed_forward_length", static_cast<uint32_t>(spec.intermediate_size));
  writer.set_u32(a + "attention.head_count", static_cast<uint32_t>(spec.num_q_heads));
  writer.set_u32(a + "attention.head_count_kv", static_cast<uint32_t>(spec.num_kv_heads));
  writer.set_u32(a + "attention.key_length", static_cast<uint32_t>(spec.head_dim));
  writer.set_u32(a + "attention.value_length", static_cast<uint32_t>(spec.head_dim));
  writer.set_f32(a + "attention.layer_norm_rms_epsilon", static_cast<float>(spec.rms_norm_eps));
  writer.set_f32(a + "rope.freq_base", static_cast<float>(spec.rope.theta));
  writer.set_u32(a + "vocab_size", static_cast<uint32_t>(spec.vocab_size));
  if (spec.bos_id) {
    writer.set_u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*spec.bos_id));
  }
  for (const int32_t id : spec.eos_ids) {
    writer.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(id));
  }
  for (const RequiredTensor& tensor : required_tensors(spec)) {
    std::vector<float> values = model.weights.at(tensor.name);
    if (spec.architecture == "llama" && tensor.is_rotated) {
      const size_t columns = tensor.shape.size() > 1 ? static_cast<size_t>(tensor.shape[1]) : 1;
      values = interleaved(values, spec.head_dim, columns);
    }
    const std::string type = tensor.shape.size() > 1 ? dtype : "F32";
    const uint32_t number = type == "F32" ? 0 : type == "F16" ? 1 : 30;
    writer.tensors.push_back({tensor.gguf_name, tensor.shape, number, encoded(values, type)});
  }
  return writer;
}

}  // namespace kv::fixtures
