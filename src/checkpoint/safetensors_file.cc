#include "checkpoint/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/byte_reader.h"
#include "checkpoint/json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostNameShown = 120;

struct Entry {
  StoredTensor tensor;
  uint64_t begin;
  uint64_t end;
};

// A list of integers that are not negative.
std::vector<uint64_t> read_list(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    throw FormatError(fmt::format("{}: {}: expected a list of integers", where, key));
  }
  std::vector<uint64_t> list;
  for (const Json& item : *found) {
    if (!item.is_number_unsigned()) {
      throw FormatError(fmt::format("{}: {}: expected integers that are not negative, found {}",
                                    where, key, shortened(item)));
    }
    list.push_back(item.get<uint64_t>());
  }
  return list;
}

std::vector<int64_t> read_shape(const Json& entry, const std::string& where) {
  std::vector<int64_t> shape;
  for (const uint64_t size : read_list(entry, "shape", where)) {
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw FormatError(fmt::format("{}: a size of {}", where, size));
    }
    shape.push_back(static_cast<int64_t>(size));
  }
  return shape;
}

const Encoding* read_dtype(const Json& entry, const std::string& where) {
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    throw FormatError(fmt::format("{}: expected a dtype", where));
  }
  const Encoding* encoding = safetensors_encoding(dtype->get_ref<const std::string&>());
  if (encoding != nullptr) return encoding;
  throw FormatError(fmt::format("{}: unknown dtype {}", where, shortened(*dtype)));
}

Entry read_entry(const std::string& name, const Json& entry, const std::string& file) {
  const std::string where =
      fmt::format("{}: tensor {:?}", file, std::string_view(name).substr(0, kMostNameShown));
  if (!entry.is_object()) throw FormatError(fmt::format("{}: expected an object", where));
  Entry read;
  read.tensor.name = name;
  read.tensor.encoding = read_dtype(entry, where);
  read.tensor.shape = read_shape(entry, where);
  const std::vector<uint64_t> offsets = read_list(entry, "data_offsets", where);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw FormatError(fmt::format("{}: data_offsets: expected [begin, end]", where));
  }
  read.begin = offsets[0];
  read.end = offsets[1];
  const auto elements = static_cast<uint64_t>(checked_elements(read.tensor.shape, where));
  const auto values = static_cast<uint64_t>(read.tensor.encoding->block_values);
  const auto bytes = static_cast<uint64_t>(read.tensor.encoding->block_bytes);
  // Division first: elements * bytes may overflow, and no file is that large.
  const bool fits = elements % values == 0 && elements / values <= (read.end - read.begin) / bytes;
  if (!fits || elements / values * bytes != read.end - read.begin) {
    throw FormatError(fmt::format("{}: shape {} of {} does not take the {} bytes of data_offsets",
                                  where, shape_text(read.tensor.shape), read.tensor.encoding->name,
                                  read.end - read.begin));
  }
  return read;
}

void expect_text_map(const Json& metadata, const std::string& file) {
  if (!metadata.is_object())
    throw FormatError(fmt::format("{}: __metadata__: expected an object", file));
  for (const Json& value : metadata) {
    if (value.is_string()) continue;
    throw FormatError(
        fmt::format("{}: __metadata__: expected strings, found {}", file, shortened(value)));
  }
}

// Tensors must follow each other from the first byte of the data to the last.
void expect_no_gaps(const std::vector<Entry>& entries, uint64_t data_bytes,
                    const std::string& file) {
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      throw FormatError(fmt::format(
          "{}: tensor {:?}: expected to begin at {}, where the one before ends, found {}", file,
          std::string_view(entry.tensor.name).substr(0, kMostNameShown), position, entry.begin));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    throw FormatError(fmt::format("{}: expected {} bytes of data, found {}{}", file, position,
                                  data_bytes, position > data_bytes ? " (truncated?)" : ""));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  ByteReader reader(file_.bytes(), file_name());
  const auto header_bytes = reader.number<uint64_t>("the header's length");
  if (header_bytes > kMostSafetensorsHeaderBytes) {
    throw FormatError(fmt::format("{}: expected a header of at most {} bytes, found {}",
                                  file_name(), kMostSafetensorsHeaderBytes, header_bytes));
  }
  const std::span<const uint8_t> text = reader.take(header_bytes, "the header");
  if (text.empty() || text[0] != '{') {
    throw FormatError(fmt::format("{}: expected a header that begins with {{", file_name()));
  }
  const Json header =
      parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, file_name());
  std::vector<Entry> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      expect_text_map(entry, file_name());
    } else {
      entries.push_back(read_entry(name, entry, file_name()));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  expect_no_gaps(entries, reader.remaining(), file_name());
  for (Entry& entry : entries) {
    entry.tensor.bytes =
        file_.bytes().subspan(reader.position() + entry.begin, entry.end - entry.begin);
    entry.tensor.file = &file_;
    tensors_.push_back(std::move(entry.tensor));
  }
}

}  // namespace kv
