#include "checkpoint/scales/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/byte_reader.h"
#include "checkpoint/safetensors_file.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

void append_bytes(std::string& out, const void* data, size_t size) {
  out.append(static_cast<const char*>(data), size);
}

// Adds tensors to a header and their bytes to `data`, which begins `before` bytes into the buffer.
void append_tensors(const std::vector<SafetensorsEntry>& tensors, size_t before,
                    OrderedJson& header, std::string& data) {
  for (const SafetensorsEntry& tensor : tensors) {
    const size_t begin = before + data.size();
    append_bytes(data, tensor.values.data(), tensor.values.size() * sizeof(float));
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, before + data.size()}}};
  }
}

// The header's length and its text, padded so that the buffer begins at a multiple of 8.
std::string head_bytes(const OrderedJson& header) {
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string out;
  append_bytes(out, &size, sizeof size);
  return out + text;
}

}  // namespace

std::string safetensors_bytes(std::vector<SafetensorsEntry> tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::ranges::sort(tensors, {}, &SafetensorsEntry::name);
  OrderedJson header;
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::string data;
  append_tensors(tensors, 0, header, data);
  return head_bytes(header) + data;
}

void copy_safetensors_with(const std::filesystem::path& from,
                           const std::vector<SafetensorsEntry>& tensors,
                           const std::filesystem::path& to) {
  const std::string name = from.filename().string();
  SafetensorsFile{from};  // checks the whole header
  const MappedFile file(from);
  ByteReader reader(file.bytes(), name);
  const auto size = reader.number<uint64_t>("the header's length");
  const std::span<const uint8_t> text = reader.take(size, "the header");
  OrderedJson header = OrderedJson::parse(text.begin(), text.end());
  for (const SafetensorsEntry& tensor : tensors) {
    if (!header.contains(tensor.name)) continue;
    throw FormatError(fmt::format("{}: {} is there already", name, tensor.name));
  }
  const std::span<const uint8_t> buffer = file.bytes().subspan(sizeof size + size);
  std::string data;
  append_tensors(tensors, buffer.size(), header, data);
  const std::string head = head_bytes(header);
  std::ofstream out(to, std::ios::binary);
  out.write(head.data(), std::ssize(head));
  out.write(reinterpret_cast<const char*>(buffer.data()), std::ssize(buffer));
  out.write(data.data(), std::ssize(data));
  out.close();
  if (!out) throw IoError(fmt::format("{}: cannot be written", to.string()));
}

}  // namespace kv
