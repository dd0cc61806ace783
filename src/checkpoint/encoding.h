#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kv {

/// How a file stores numbers: blocks of `block_values` in `block_bytes`, the fields of GGUF's
/// types as GGUF v3 has them. The table holds every known type, so that any tensor's size can be
/// checked; only those with a `decode` can be read.
struct Encoding {
  using Decode = void (*)(const uint8_t* blocks, int64_t num_blocks, float* out);

  std::string_view name;  // "Q4_1", "BF16", ...
  int block_values;
  int block_bytes;
  Decode decode;  // null: known, but not readable

  bool is_blocked() const { return block_values > 1; }
  bool is_bf16() const { return name == "BF16"; }
};

/// By GGUF's number of the type; null when the number is unknown.
const Encoding* gguf_encoding(uint32_t type);

/// By the dtype's name in a safetensors header; null when it is unknown.
const Encoding* safetensors_encoding(std::string_view dtype);

/// "F32, F16, BF16, Q4_0, ...": those that can be read.
std::string readable_encodings();

}  // namespace kv
