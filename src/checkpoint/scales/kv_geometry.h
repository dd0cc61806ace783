#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/json.h"

namespace kv {

/// What a configuration says about the cache of a model, of any architecture: kvscale examines
/// scales of models that it cannot run. 0 or empty = not said.
struct KvGeometry {
  std::string model_type;
  std::string dtype;  // "bfloat16", "float16", "float32"
  int num_layers = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  bool is_mla = false;           // one latent of head_dim values is cached in place of K and V
  bool is_sparse_mla = false;    // ... and an indexer chooses which tokens' latents are read
  int num_kv_shared_layers = 0;  // the last so many layers read an earlier layer's cache
  std::vector<std::string> layer_types;
  std::string rope;            // everything that shapes the rotation, as one line of JSON
  double rope_mscale = 0;      // what the rotation multiplies K by; 0 = not known
  bool norm_adds_one = false;  // RMS norms multiply by 1 + weight (Gemma)
};

/// From config.json of any model (the language model's part of a multimodal one), or Mistral's
/// params.json. Throws FormatError for a value of a wrong type or size.
KvGeometry read_kv_geometry(const JsonFields& config);

/// Likewise for the config.json of a legacy TensorRT-LLM checkpoint.
KvGeometry read_tensorrt_llm_geometry(const JsonFields& config);

/// The layer whose cache `layer` reads.
int cache_layer(const KvGeometry& geometry, int layer);

}  // namespace kv
