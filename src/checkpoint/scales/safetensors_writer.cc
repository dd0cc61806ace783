#include "checkpoint/scales/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace kv {
namespace {

void append_bytes(std::string& out, const void* data, size_t size) {
  out.append(static_cast<const char*>(data), size);
}

}  // namespace

std::string safetensors_bytes(std::vector<SafetensorsEntry> tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::ranges::sort(tensors, {}, &SafetensorsEntry::name);
  nlohmann::ordered_json header;
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::string data;
  for (const SafetensorsEntry& tensor : tensors) {
    const size_t begin = data.size();
    append_bytes(data, tensor.values.data(), tensor.values.size() * sizeof(float));
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string out;
  append_bytes(out, &size, sizeof size);
  return out + text + data;
}

}  // namespace kv
