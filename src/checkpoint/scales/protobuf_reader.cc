#include "checkpoint/scales/protobuf_reader.h"

#include <fmt/format.h>

#include <cstring>

#include "kvscale/error.h"

namespace kv {

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = take(1)[0];
    value |= uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80) == 0) return value;
  }
  throw FormatError(fmt::format("{}: a number longer than 64 bits at byte {}", file_, position_));
}

std::span<const uint8_t> ProtobufReader::take(uint64_t size) {
  if (size > bytes_.size() - position_) {
    throw FormatError(
        fmt::format("{}: truncated: expected {} bytes at byte {} of a message, found {}", file_,
                    size, position_, bytes_.size() - position_));
  }
  const std::span<const uint8_t> part = bytes_.subspan(position_, size);
  position_ += size;
  return part;
}

std::optional<ProtobufField> ProtobufReader::next() {
  if (position_ == bytes_.size()) return std::nullopt;
  const uint64_t key = varint();
  ProtobufField field;
  field.number = static_cast<uint32_t>(key >> 3);
  field.wire_type = static_cast<uint32_t>(key & 7);
  switch (field.wire_type) {
    case 0:
      field.value = varint();
      return field;
    case 1:
      std::memcpy(&field.value, take(8).data(), 8);
      return field;
    case 2:
      field.bytes = take(varint());
      return field;
    case 5:
      field.bytes = take(4);
      std::memcpy(&field.value, field.bytes.data(), 4);
      return field;
    default:
      throw FormatError(
          fmt::format("{}: unknown wire type {} at byte {}", file_, field.wire_type, position_));
  }
}

}  // namespace kv
