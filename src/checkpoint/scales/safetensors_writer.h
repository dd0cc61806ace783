#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kv {

/// An F32 tensor to be written; an empty shape is one value.
struct SafetensorsEntry {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// A whole safetensors file: tensors in the order of their names, header padded to 8 bytes.
std::string safetensors_bytes(std::vector<SafetensorsEntry> tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace kv
