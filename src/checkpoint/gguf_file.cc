#include "checkpoint/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "checkpoint/byte_reader.h"
#include "kvscale/error.h"

namespace kv {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", little endian
constexpr size_t kMostNameBytes = 63;    // GGUF v3: names of tensors are shorter than 64 bytes
constexpr uint32_t kMostDims = 4;
// The least bytes that a tensor's description takes: name length, number of dimensions, type,
// offset.
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;

// Ranges of tensors, sorted, must not overlap: two names for the same bytes are no model.
void expect_disjoint(const std::vector<StoredTensor>& tensors, const std::string& file) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) {
    if (!tensor.bytes.empty()) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->bytes.data() < b->bytes.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::span<const uint8_t> before = order[i - 1]->bytes;
    if (before.data() + before.size() <= order[i]->bytes.data()) continue;
    throw FormatError(
        fmt::format("{}: tensors {:?} and {:?} overlap", file, order[i - 1]->name, order[i]->name));
  }
}

struct TensorInfo {
  StoredTensor tensor;
  uint64_t offset;
};

std::vector<int64_t> read_shape(ByteReader& reader, const std::string& where) {
  const auto num_dims = reader.number<uint32_t>("a tensor's dimensions");
  if (num_dims > kMostDims) {
    throw FormatError(
        fmt::format("{}: expected at most {} dimensions, found {}", where, kMostDims, num_dims));
  }
  std::vector<int64_t> shape(num_dims);
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto size = reader.number<uint64_t>("a tensor's dimensions");
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw FormatError(fmt::format("{}: a dimension of {}", where, size));
    }
    shape[num_dims - 1 - i] = static_cast<int64_t>(size);  // GGUF: the contiguous one first
  }
  return shape;
}

TensorInfo read_tensor_info(ByteReader& reader) {
  const std::string_view name = reader.string("a tensor's name");
  const std::string where =
      fmt::format("{}: tensor {:?}", reader.file(), name.substr(0, kMostNameBytes));
  if (name.empty() || name.size() > kMostNameBytes) {
    throw FormatError(fmt::format("{}: expected a name of 1 to {} bytes, found {}", where,
                                  kMostNameBytes, name.size()));
  }
  TensorInfo info;
  info.tensor.name = name;
  info.tensor.shape = read_shape(reader, where);
  const auto type = reader.number<uint32_t>("a tensor's type");
  info.offset = reader.number<uint64_t>("a tensor's offset");
  info.tensor.encoding = gguf_encoding(type);
  if (info.tensor.encoding == nullptr) {
    throw UnsupportedError(
        fmt::format("{}: unknown tensor type {}; readable: {}", where, type, readable_encodings()));
  }
  return info;
}

// Bytes that the tensor takes by its shape and type.
uint64_t stored_size(const StoredTensor& tensor, const std::string& where) {
  const int64_t elements = checked_elements(tensor.shape, where);
  const Encoding& encoding = *tensor.encoding;
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (columns % encoding.block_values != 0) {
    throw FormatError(fmt::format("{}: expected rows of a multiple of {} values ({}), found {}",
                                  where, encoding.block_values, encoding.name, columns));
  }
  const int64_t blocks = elements / encoding.block_values;
  if (blocks > std::numeric_limits<int64_t>::max() / encoding.block_bytes) {
    throw FormatError(
        fmt::format("{}: shape {} is larger than any file", where, shape_text(tensor.shape)));
  }
  return static_cast<uint64_t>(blocks * encoding.block_bytes);
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path) {
  ByteReader reader(file_.bytes(), file_name());
  if (const auto magic = reader.number<uint32_t>("the magic"); magic != kMagic) {
    throw FormatError(fmt::format("{}: expected the magic \"GGUF\", found {:#010x} (little endian)",
                                  file_name(), magic));
  }
  const auto version = reader.number<uint32_t>("the version");
  if (version == 0x02000000 || version == 0x03000000) {
    throw UnsupportedError(fmt::format("{}: a big-endian GGUF file", file_name()));
  }
  if (version != 2 && version != 3) {
    throw UnsupportedError(
        fmt::format("{}: expected GGUF version 2 or 3, found {}", file_name(), version));
  }
  const auto num_tensors = reader.number<uint64_t>("the header");
  const auto num_values = reader.number<uint64_t>("the header");
  metadata_ = GgufMetadata(reader, num_values);
  if (const int64_t parts = metadata_.integer("split.count").value_or(1); parts > 1) {
    throw UnsupportedError(
        fmt::format("{}: one of {} parts; join them into one file first (gguf-split --merge)",
                    file_name(), parts));
  }
  read_tensors(reader, num_tensors);
}

void GgufFile::read_tensors(ByteReader& reader, uint64_t count) {
  reader.expect_items(count, kLeastTensorBytes, "tensors");
  std::vector<TensorInfo> infos;
  std::set<std::string> names;
  for (uint64_t i = 0; i < count; ++i) infos.push_back(read_tensor_info(reader));
  const uint64_t align = alignment();
  const uint64_t data_begin = (reader.position() + align - 1) / align * align;
  const uint64_t file_size = file_.bytes().size();
  for (TensorInfo& info : infos) {
    const std::string where = fmt::format("{}: tensor {:?}", file_name(), info.tensor.name);
    if (!names.insert(info.tensor.name).second) {
      throw FormatError(fmt::format("{} occurs twice", where));
    }
    if (info.offset % align != 0) {
      throw FormatError(fmt::format("{}: expected an offset that is a multiple of {}, found {}",
                                    where, align, info.offset));
    }
    const uint64_t size = stored_size(info.tensor, where);
    if (data_begin > file_size || info.offset > file_size - data_begin ||
        size > file_size - data_begin - info.offset) {
      throw FormatError(fmt::format(
          "{}: expected {} bytes at offset {} of the data, which begin at byte {}; the file has {} "
          "bytes (truncated?)",
          where, size, info.offset, data_begin, file_size));
    }
    info.tensor.bytes = file_.bytes().subspan(data_begin + info.offset, size);
    info.tensor.file = &file_;
    tensors_.push_back(std::move(info.tensor));
  }
  expect_disjoint(tensors_, file_name());
}

uint64_t GgufFile::alignment() const {
  const int64_t align = metadata_.integer("general.alignment").value_or(32);
  // A power of two; beyond a huge page it is no alignment but a broken number.
  if (align > 0 && align <= (1 << 21) && std::has_single_bit(static_cast<uint64_t>(align))) {
    return static_cast<uint64_t>(align);
  }
  throw FormatError(
      fmt::format("{}: key \"general.alignment\": expected a power of two up to 2^21, found {}",
                  file_name(), align));
}

}  // namespace kv
