#pragma once

// Whole tiny models for tests, in memory and as GGUF file or Hugging Face directory.

#include <algorithm>
#include <cmath>
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
#include "checkpoint/family.h"
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

/// Gives a specification all that its architecture has beside Llama's parts, in small: windows of
/// `window` keys in every layer, or in all but every second one; `experts` experts.
inline void add_family_parts(ModelSpec& spec, int window, int experts) {
  const Family& family = family_of(spec);
  take_family_parts(family, spec);
  spec.has_qkv_bias = family.has_qkv_bias;
  Family rule = family;
  rule.full_every = 2;
  if (family.windows != WindowRule::kFromMaxLayer)
    spec.windows = windows_by_rule(rule, spec.num_layers, window, 0);
  if (family.has_latent) return;
  if (family.experts != ExpertNames::kNone) {
    spec.num_experts = experts;
    spec.experts_per_token = 2;
    spec.renormalizes_experts = true;
  }
  if (!family.is_gemma) return;
  spec.tied_embeddings = true;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.norm_offset = 1.0;
  spec.attention_soft_cap = family.attention_cap;
  spec.logit_soft_cap = family.logit_cap;
  if (family.has_window_rope) spec.window_rope.emplace();
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

/// Latents and experts as DeepSeek-V2 declares them.
inline std::string deepseek_config(const ModelSpec& spec) {
  const LatentSpec& latent = *spec.latent;
  std::ostringstream json;
  json << ",\"q_lora_rank\":" << (latent.q_rank > 0 ? std::to_string(latent.q_rank) : "null")
       << ",\"kv_lora_rank\":" << latent.kv_rank << ",\"qk_nope_head_dim\":" << latent.nope_dim
       << ",\"qk_rope_head_dim\":" << latent.rope_dim << ",\"v_head_dim\":" << latent.value_dim
       << ",\"first_k_dense_replace\":" << spec.dense_layers
       << ",\"n_routed_experts\":" << spec.num_experts
       << ",\"num_experts_per_tok\":" << spec.experts_per_token
       << ",\"moe_intermediate_size\":" << spec.intermediate_size
       << ",\"n_shared_experts\":" << spec.shared_intermediate_size / spec.intermediate_size
       << ",\"routed_scaling_factor\":" << spec.experts_scale
       << ",\"norm_topk_prob\":" << (spec.renormalizes_experts ? "true" : "false")
       << ",\"topk_method\":"
       << (spec.expert_groups > 0 ? "\"group_limited_greedy\"" : "\"greedy\"");
  if (spec.expert_groups > 0)
    json << ",\"n_group\":" << spec.expert_groups << ",\"topk_group\":" << spec.groups_per_token;
  if (spec.rope.type == RopeType::kYarn) {
    json << ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":" << spec.rope.factor
         << ",\"original_max_position_embeddings\":" << spec.rope.original_max_positions
         << ",\"beta_fast\":" << spec.rope.beta_fast << ",\"beta_slow\":" << spec.rope.beta_slow;
    if (spec.rope.mscale) json << ",\"mscale\":" << *spec.rope.mscale;
    if (spec.rope.mscale_all_dim) json << ",\"mscale_all_dim\":" << *spec.rope.mscale_all_dim;
    json << "}";
  }
  return json.str();
}

/// What config.json says beside what all architectures have.
inline std::string hf_config_of_family(const ModelSpec& spec) {
  const Family& family = family_of(spec);
  std::ostringstream json;
  const auto largest = spec.windows.empty() ? 0 : *std::ranges::max_element(spec.windows);
  if (family.windows == WindowRule::kAll || family.windows == WindowRule::kAllButEvery)
    json << ",\"sliding_window\":" << (largest > 0 ? std::to_string(largest) : "null");
  if (family.windows == WindowRule::kAllButEvery) {
    json << ",\"layer_types\":[";
    for (int i = 0; i < spec.num_layers; ++i)
      json << (i > 0 ? "," : "") << (spec.window(i) > 0 ? "\"sliding" : "\"full") << "_attention\"";
    json << "]";
  }
  if (family.is_gemma) json << ",\"query_pre_attn_scalar\":" << std::pow(spec.score_scale(), -2);
  if (spec.attention_soft_cap > 0)
    json << ",\"attn_logit_softcapping\":" << spec.attention_soft_cap;
  if (spec.logit_soft_cap > 0) json << ",\"final_logit_softcapping\":" << spec.logit_soft_cap;
  if (spec.window_rope) json << ",\"rope_local_base_freq\":" << spec.window_rope->theta;
  if (spec.latent) return json.str() + deepseek_config(spec);
  if (spec.num_experts == 0) return json.str();
  const bool is_mixtral = family.experts == ExpertNames::kMixtral;
  json << (is_mixtral ? ",\"num_local_experts\":" : ",\"num_experts\":") << spec.num_experts
       << ",\"num_experts_per_tok\":" << spec.experts_per_token;
  if (!is_mixtral) {
    json << ",\"moe_intermediate_size\":" << spec.intermediate_size
         << ",\"norm_topk_prob\":" << (spec.renormalizes_experts ? "true" : "false");
  }
  return json.str();
}

/// config.json of the specification, without rope_scaling.
inline std::string hf_config(const ModelSpec& spec) {
  const Family& family = family_of(spec);
  std::ostringstream json;
  json << "{\"architectures\":[\"" << family.hf_class << "\"],\"model_type\":\""
       << spec.architecture << "\",\""
       << (family.is_gemma ? "hidden_activation\":\"gelu_pytorch_tanh\"" : "hidden_act\":\"silu\"")
       << ",\"num_hidden_layers\":" << spec.num_layers << ",\"hidden_size\":" << spec.hidden_size
       << ",\"intermediate_size\":"
       << (spec.dense_intermediate_size > 0 ? spec.dense_intermediate_size : spec.intermediate_size)
       << ",\"num_attention_heads\":" << spec.num_q_heads
       << ",\"num_key_value_heads\":" << spec.num_kv_heads << ",\"head_dim\":" << spec.head_dim
       << ",\"vocab_size\":" << spec.vocab_size
       << ",\"max_position_embeddings\":" << spec.max_positions
       << ",\"rms_norm_eps\":" << spec.rms_norm_eps << ",\"rope_theta\":" << spec.rope.theta
       << ",\"tie_word_embeddings\":" << (spec.tied_embeddings ? "true" : "false")
       << ",\"attention_bias\":" << (spec.has_o_bias ? "true" : "false")
       << hf_config_of_family(spec);
  if (spec.bos_id) json << ",\"bos_token_id\":" << *spec.bos_id;
  json << ",\"eos_token_id\":[";
  for (size_t i = 0; i < spec.eos_ids.size(); ++i) json << (i > 0 ? "," : "") << spec.eos_ids[i];
  json << "]}";
  return json.str();
}

/// A file's tensors, put together from those of the model: by name, in the order of the first part.
struct WholeTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};
inline std::vector<WholeTensor> whole_tensors(const TinyModel& model, bool is_gguf) {
  std::vector<WholeTensor> out;
  for (const RequiredTensor& tensor : required_tensors(model.spec)) {
    const Place& place = tensor.place(is_gguf);
    std::vector<float> part = model.weights.at(tensor.name);
    const size_t columns = tensor.shape.size() > 1 ? static_cast<size_t>(tensor.shape[1]) : 1;
    if (is_gguf && tensor.is_rotated && family_of(model.spec).is_interleaved_in_gguf())
      part = interleaved(part, model.spec.head_dim, columns);
    // Converters to GGUF fold the 1 of Gemma's norms into the weights.
    if (is_gguf && tensor.name.ends_with("norm.weight")) {
      for (float& value : part) value += static_cast<float>(model.spec.norm_offset);
    }
    auto whole = std::ranges::find(out, place.name, &WholeTensor::name);
    if (whole == out.end()) {
      size_t count = 1;
      for (const int64_t size : place.shape) count *= static_cast<size_t>(size);
      whole = out.insert(out.end(), {place.name, place.shape, std::vector<float>(count)});
    }
    std::ranges::copy(part,
                      whole->values.begin() + place.first_row * static_cast<int64_t>(columns));
  }
  return out;
}

inline SafetensorsWriter hf_weights(const TinyModel& model, const std::string& dtype = "BF16") {
  SafetensorsWriter writer;
  for (const WholeTensor& tensor : whole_tensors(model, false))
    writer.tensors.push_back({tensor.name, dtype, tensor.shape, encoded(tensor.values, dtype)});
  return writer;
}

/// A Hugging Face directory with config.json and model.safetensors.
inline void write_hf_model(const std::filesystem::path& folder, const TinyModel& model,
                           const std::string& dtype = "BF16") {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", hf_config(model.spec));
  write_file(folder / "model.safetensors", hf_weights(model, dtype).bytes());
}

/// The model as a GGUF file: matrices of type `dtype`, vectors F32, as converters write them.
inline GgufWriter gguf_model(const TinyModel& model, const std::string& dtype = "F16") {
  const ModelSpec& spec = model.spec;
  const std::string gguf(family_of(spec).gguf), a = gguf + ".";
  GgufWriter writer;
  writer.set_text("general.architecture", gguf).set_text("general.name", spec.name);
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
  if (!spec.windows.empty()) {
    writer.set_u32(a + "attention.sliding_window",
                   static_cast<uint32_t>(*std::ranges::max_element(spec.windows)));
  }
  if (family_of(spec).windows == WindowRule::kAllButEvery)
    writer.set_u32(a + "attention.sliding_window_pattern", 2);
  if (spec.attention_soft_cap > 0)
    writer.set_f32(a + "attn_logit_softcapping", static_cast<float>(spec.attention_soft_cap));
  if (spec.logit_soft_cap > 0)
    writer.set_f32(a + "final_logit_softcapping", static_cast<float>(spec.logit_soft_cap));
  if (spec.num_experts > 0) {
    writer.set_u32(a + "expert_count", static_cast<uint32_t>(spec.num_experts));
    writer.set_u32(a + "expert_used_count", static_cast<uint32_t>(spec.experts_per_token));
    writer.set_u32(a + "expert_feed_forward_length", static_cast<uint32_t>(spec.intermediate_size));
  }
  if (spec.bos_id) {
    writer.set_u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*spec.bos_id));
  }
  for (const int32_t id : spec.eos_ids) {
    writer.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(id));
  }
  for (const WholeTensor& tensor : whole_tensors(model, true)) {
    const std::string type = tensor.shape.size() > 1 ? dtype : "F32";
    const uint32_t number = type == "F32" ? 0 : type == "F16" ? 1 : 30;
    writer.tensors.push_back({tensor.name, tensor.shape, number, encoded(tensor.values, type)});
  }
  return writer;
}

}  // namespace kv::fixtures
