#pragma once

#include <cstdint>
#include <filesystem>
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

/// Writes a copy of the safetensors file `from` with more tensors behind its own, whose names,
/// places and bytes stay. Throws FormatError when it holds one of the names, IoError when it cannot
/// be written.
void copy_safetensors_with(const std::filesystem::path& from,
                           const std::vector<SafetensorsEntry>& tensors,
                           const std::filesystem::path& to);

}  // namespace kv
