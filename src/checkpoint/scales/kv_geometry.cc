#include "checkpoint/scales/kv_geometry.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/hf_config.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr IntRange kSharedRange{0, 1024};

// Keys that change what the rotation does to K.
constexpr const char* kRopeKeys[] = {"rope_theta", "rope_scaling", "rope_parameters",
                                     "rope_local_base_freq", "partial_rotary_factor"};

std::string rope_text(const JsonFields& config) {
  Json out = Json::object();
  for (const char* key : kRopeKeys) {
    if (const Json* value = config.find(key)) out[key] = *value;
  }
  return out.dump();
}

// LongRoPE is the one type that read_hf_rope() does not know and that changes K's size.
double longrope_mscale(const JsonFields& scaling, int max_positions) {
  if (const auto given = scaling.number("attention_factor")) return *given;
  const double original =
      scaling.number("original_max_position_embeddings").value_or(max_positions);
  const double factor = scaling.number("factor").value_or(max_positions / original);
  return factor <= 1 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
}

double rope_mscale(const JsonFields& config) {
  const int max_positions =
      config.integer("max_position_embeddings", kPositionsRange).value_or(4096);
  if (config.has("rope_scaling") && config.find("rope_scaling")->is_object()) {
    const JsonFields scaling = config.object("rope_scaling");
    if (scaling.text("rope_type").value_or(scaling.text("type").value_or("")) == "longrope") {
      return longrope_mscale(scaling, max_positions);
    }
  }
  try {
    return attention_factor(read_hf_rope(config, max_positions));
  } catch (const Error&) {
    return 0;  // "not known": checks that need it say so
  }
}

// The language model's part of a multimodal configuration.
JsonFields text_part(const JsonFields& config) {
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    if (config.has(key) && config.find(key)->is_object()) return text_part(config.object(key));
  }
  return config;
}

int head_dim_of(const JsonFields& config, const KvGeometry& geometry) {
  if (const auto given = config.integer("head_dim", kHeadDimRange)) return *given;
  const auto hidden = config.integer("hidden_size", kSizeRange);
  return hidden && geometry.num_q_heads > 0 ? *hidden / geometry.num_q_heads : 0;
}

std::vector<std::string> text_list(const JsonFields& config, const char* key) {
  std::vector<std::string> list;
  const Json* value = config.find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) config.fail(key, "a list");
  for (const Json& item : *value) {
    if (!item.is_string()) config.fail(key, "a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

}  // namespace

KvGeometry read_kv_geometry(const JsonFields& whole) {
  const JsonFields config = text_part(whole);
  KvGeometry out;
  out.model_type = config.text("model_type").value_or(whole.text("model_type").value_or(""));
  out.dtype = config.text("dtype").value_or(
      config.text("torch_dtype")
          .value_or(whole.text("dtype").value_or(whole.text("torch_dtype").value_or(""))));
  // params.json of Mistral's own files has other names for the same.
  const auto size = [&](const char* hf, const char* mistral, const IntRange& range) {
    const std::optional<int> found = config.integer(hf, range);
    return found ? *found : config.integer(mistral, range).value_or(0);
  };
  out.num_layers = size("num_hidden_layers", "n_layers", kNumLayersRange);
  out.num_q_heads = size("num_attention_heads", "n_heads", kHeadsRange);
  out.num_kv_heads = size("num_key_value_heads", "n_kv_heads", kHeadsRange);
  if (out.num_kv_heads == 0) out.num_kv_heads = out.num_q_heads;
  out.head_dim = head_dim_of(config, out);
  out.is_mla = config.has("kv_lora_rank");
  out.is_sparse_mla = out.is_mla && config.has("index_topk");
  if (out.is_mla) {
    out.num_kv_heads = 1;
    out.head_dim = config.integer("kv_lora_rank", kHeadDimRange).value_or(0) +
                   config.integer("qk_rope_head_dim", kHeadDimRange).value_or(0);
  }
  out.num_kv_shared_layers = config.integer("num_kv_shared_layers", kSharedRange).value_or(0);
  out.layer_types = text_list(config, "layer_types");
  out.rope = rope_text(config);
  out.rope_mscale = rope_mscale(config);
  out.norm_adds_one = out.model_type.starts_with("gemma");
  return out;
}

KvGeometry read_tensorrt_llm_geometry(const JsonFields& config) {
  KvGeometry out;
  out.model_type = config.text("architecture").value_or("");
  out.dtype = config.text("dtype").value_or("");
  out.num_layers = config.integer("num_hidden_layers", kNumLayersRange).value_or(0);
  out.num_q_heads = config.integer("num_attention_heads", kHeadsRange).value_or(0);
  out.num_kv_heads = config.integer("num_key_value_heads", kHeadsRange).value_or(out.num_q_heads);
  out.head_dim = config.integer("head_size", kHeadDimRange).value_or(head_dim_of(config, out));
  return out;
}

int cache_layer(const KvGeometry& geometry, int layer) {
  const int owners = geometry.num_layers - geometry.num_kv_shared_layers;
  if (layer < owners || owners <= 0) return layer;
  const auto type_of = [&](int i) {
    return i < std::ssize(geometry.layer_types) ? geometry.layer_types[static_cast<size_t>(i)] : "";
  };
  // A sharing layer reads the last owner of its own kind: sliding layers a sliding one.
  for (int owner = owners - 1; owner >= 0; --owner) {
    if (type_of(owner) == type_of(layer)) return owner;
  }
  return owners - 1;
}

}  // namespace kv
