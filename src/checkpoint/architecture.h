#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/model_spec.h"

namespace kv {

/// Where a file keeps a tensor: all of one of its tensors, or consecutive rows of one that holds
/// several (fused projections, stacked experts).
struct Place {
  std::string name;
  std::vector<int64_t> shape;  // of the file's tensor
  int64_t first_row = 0;       // rows are those of the last dimension, counted over all others
};

/// A tensor that the architecture needs.
struct RequiredTensor {
  std::string name;  // as Hugging Face's Llama, Gemma and Qwen3-MoE spell it
  std::vector<int64_t> shape;
  Place hf;                 // Hugging Face, as the model's class spells it
  Place gguf;               // GGUF v3
  bool is_rotated = false;  // rows of Q and K: GGUF interleaves them for architecture llama

  const Place& place(bool is_gguf) const { return is_gguf ? gguf : hf; }
};

/// Every tensor of a model of this specification, in a fixed order. Throws UnsupportedError for an
/// architecture that is not in family.h.
std::vector<RequiredTensor> required_tensors(const ModelSpec& spec);

}  // namespace kv
