#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kv {

/// One field of a protobuf message: a number (varint or fixed) or a run of bytes.
struct ProtobufField {
  uint32_t number = 0;
  uint32_t wire_type = 0;          // 0 varint, 1 fixed 64, 2 bytes, 5 fixed 32
  uint64_t value = 0;              // of 0, 1 and 5
  std::span<const uint8_t> bytes;  // of 2 and 5

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

/// Walks over a protobuf message; lengths are checked against what is left.
class ProtobufReader {
 public:
  ProtobufReader(std::span<const uint8_t> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)) {}

  /// The next field; nullopt at the end. Throws FormatError for a length that reaches past the
  /// message and for groups, which no current writer uses.
  std::optional<ProtobufField> next();

 private:
  uint64_t varint();
  std::span<const uint8_t> take(uint64_t size);

  std::span<const uint8_t> bytes_;
  std::string file_;
  size_t position_ = 0;
};

}  // namespace kv
