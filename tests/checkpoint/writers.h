#pragma once

// Writers of small files for tests: GGUF and safetensors. They are written against the formats'
// descriptions, not against the readers, and let a test lie.

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kv::fixtures {

/// An empty folder that is gone with the object; in memory where that can be had, since tests
/// write thousands of small files.
class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const bool has_memory = ::access(memory.c_str(), W_OK) == 0;
    const std::filesystem::path parent =
        has_memory ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "kvscale-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream content;
  content << in.rdbuf();
  return std::move(content).str();
}

template <class T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void append_text(std::string& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

/// Number of a GGUF value type; only what tests need.
enum GgufTypeNumber : uint32_t {
  kU32 = 4,
  kI32 = 5,
  kF32Value = 6,
  kBool = 7,
  kText = 8,
  kArray = 9
};

/// A GGUF file in pieces. Public members may be set to lies before bytes() is called.
class GgufWriter {
 public:
  struct Value {
    std::string key;
    uint32_t type;
    std::string payload;
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;  // as in PyTorch, the contiguous dimension last
    uint32_t type;               // 0 F32, 1 F16, 30 BF16, ...
    std::string data;
    std::optional<uint64_t> offset = std::nullopt;  // nullopt: after the tensor before
  };

  uint32_t version = 3;
  uint64_t alignment = 32;  // written as a key when it is not 32
  std::optional<uint64_t> num_values;
  std::optional<uint64_t> num_tensors;
  std::vector<Value> values;
  std::vector<Tensor> tensors;

  GgufWriter& set(std::string key, uint32_t type, std::string payload) {
    erase(key);
    values.push_back({std::move(key), type, std::move(payload)});
    return *this;
  }
  GgufWriter& set_u32(std::string key, uint32_t value) { return set_pod(key, kU32, value); }
  GgufWriter& set_f32(std::string key, float value) { return set_pod(key, kF32Value, value); }
  GgufWriter& set_bool(std::string key, bool value) { return set_pod(key, kBool, value); }
  GgufWriter& set_text(std::string key, std::string_view value) {
    std::string payload;
    append_text(payload, value);
    return set(std::move(key), kText, payload);
  }
  GgufWriter& set_texts(std::string key, const std::vector<std::string>& list) {
    std::string payload;
    append(payload, uint32_t{kText});
    append(payload, static_cast<uint64_t>(list.size()));
    for (const std::string& text : list) append_text(payload, text);
    return set(std::move(key), kArray, payload);
  }
  GgufWriter& set_integers(std::string key, const std::vector<int32_t>& list) {
    std::string payload;
    append(payload, uint32_t{kI32});
    append(payload, static_cast<uint64_t>(list.size()));
    for (const int32_t value : list) append(payload, value);
    return set(std::move(key), kArray, payload);
  }
  void erase(std::string_view key) {
    std::erase_if(values, [&](const Value& value) { return value.key == key; });
  }
  Tensor& tensor(std::string_view name) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + std::string(name));
  }
  void erase_tensor(std::string_view name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
  }

  std::string bytes() const {
    std::string out = "GGUF";
    const bool has_alignment = alignment != 32;
    append(out, version);
    append(out, num_tensors.value_or(tensors.size()));
    append(out, num_values.value_or(values.size() + (has_alignment ? 1 : 0)));
    for (const Value& value : values) append_value(out, value);
    if (has_alignment) append_value(out, alignment_value());
    uint64_t end = 0;
    for (const Tensor& tensor : tensors) append_info(out, tensor, end);
    out.resize(padded(out.size()), '\0');
    const size_t data_begin = out.size();
    for (const Tensor& tensor : tensors) {
      if (!tensor.offset) out.resize(data_begin + padded(out.size() - data_begin), '\0');
      out += tensor.data;
    }
    return out;
  }

 private:
  template <class T>
  GgufWriter& set_pod(std::string key, uint32_t type, T value) {
    std::string payload;
    append(payload, value);
    return set(std::move(key), type, payload);
  }
  uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
  Value alignment_value() const {
    Value value{"general.alignment", kU32, ""};
    append(value.payload, static_cast<uint32_t>(alignment));
    return value;
  }
  static void append_value(std::string& out, const Value& value) {
    append_text(out, value.key);
    append(out, value.type);
    out += value.payload;
  }
  void append_info(std::string& out, const Tensor& tensor, uint64_t& end) const {
    append_text(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) append(out, tensor.shape[i]);
    append(out, tensor.type);
    append(out, tensor.offset.value_or(padded(end)));
    end = padded(end) + tensor.data.size();
  }
};

/// A safetensors file in pieces, tensors in the order they were added.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  // "F32", "BF16", ...
    std::vector<int64_t> shape;
    std::string data;
  };
  std::vector<Tensor> tensors;

  std::string header() const {
    std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
    size_t begin = 0;
    for (const Tensor& tensor : tensors) {
      std::string shape;
      for (const int64_t size : tensor.shape) {
        shape += (shape.empty() ? "" : ",") + std::to_string(size);
      }
      json += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(begin + tensor.data.size()) + "]}";
      begin += tensor.data.size();
    }
    json += "}";
    json.resize((json.size() + 7) / 8 * 8, ' ');
    return json;
  }
  std::string bytes() const {
    std::string data;
    for (const Tensor& tensor : tensors) data += tensor.data;
    return with_header(header(), data);
  }
  static std::string with_header(std::string_view header, std::string_view data) {
    std::string out;
    append_text(out, header);
    return out += data;
  }
};

}  // namespace kv::fixtures
