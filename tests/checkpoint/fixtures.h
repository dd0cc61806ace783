#pragma once

// Whole tiny models for tests, in memory and as GGUF file or Hugging Face directory.

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/architecture.h"
#include "checkpoint/model_spec.h"
#include "numeric/bf16.h"
#include "numeric/f16.h"
#include "tests/checkpoint/writers.h"

namespace kv::fixtures {

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
