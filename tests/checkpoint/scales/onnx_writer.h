#pragma once

// As much of ONNX's protobuf as scales need, written against its field numbers.

#include <cstdint>
#include <string>
#include <vector>

namespace kv::fixtures {

inline std::string varint(uint64_t value) {
  std::string out;
  while (value >= 0x80) {
    out += static_cast<char>((value & 0x7f) | 0x80);
    value >>= 7;
  }
  return out += static_cast<char>(value);
}

inline std::string bytes_field(uint32_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// A graph's node (field 1): attention when it has scales or names an input of scales.
inline std::string onnx_node(const std::string& name, const std::vector<std::string>& inputs,
                             const std::vector<float>& qkv_scales) {
  std::string node;
  for (const std::string& input : inputs) node += bytes_field(1, input);
  node += bytes_field(3, name) + bytes_field(4, "AttentionPlugin");
  if (!qkv_scales.empty()) {
    node += bytes_field(5, bytes_field(1, "qkv_scales") + bytes_field(7, floats(qkv_scales)));
  }
  return bytes_field(1, node);
}

/// A graph's initializer (field 5), F32.
inline std::string onnx_tensor(const std::string& name, const std::vector<float>& values) {
  return bytes_field(
      5, varint(2 << 3) + varint(1) + bytes_field(8, name) + bytes_field(9, floats(values)));
}

inline std::string onnx_model(const std::vector<std::string>& parts) {
  std::string graph;
  for (const std::string& part : parts) graph += part;
  return varint(1 << 3) + varint(8) + bytes_field(7, graph);
}

}  // namespace kv::fixtures
