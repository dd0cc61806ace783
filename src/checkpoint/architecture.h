#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/model_spec.h"

namespace kv {

/// A tensor that the architecture needs, in Hugging Face's layout.
struct RequiredTensor {
  std::string name;       // Hugging Face
  std::string gguf_name;  // GGUF v3
  std::vector<int64_t> shape;
  bool is_rotated = false;  // rows of Q and K: GGUF interleaves them for architecture llama
};

/// Every tensor of a model of this specification (architectures llama and qwen2), in a fixed order.
std::vector<RequiredTensor> required_tensors(const ModelSpec& spec);

}  // namespace kv
