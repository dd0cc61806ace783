#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "kvscale/error.h"

namespace kv {

/// Walks over a file's bytes; every step is checked against what is left, so a count or length
/// that lies ends in a FormatError naming the file and the place. Little-endian machines only.
class ByteReader {
 public:
  ByteReader(std::span<const uint8_t> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  const std::string& file() const { return file_; }

  /// The next sizeof(T) bytes as a number; `what` names it in the error.
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  /// A u64 length, then so many bytes. The view lives as long as the file's bytes.
  std::string_view string(std::string_view what) {
    const std::span<const uint8_t> text = take(number<uint64_t>(what), what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  std::span<const uint8_t> take(uint64_t size, std::string_view what) {
    if (size > remaining()) {
      throw FormatError(fmt::format("{}: truncated in {}: expected {} bytes at byte {}, found {}",
                                    file_, what, size, position_, remaining()));
    }
    const std::span<const uint8_t> part = bytes_.subspan(position_, size);
    position_ += size;
    return part;
  }

  /// What was walked over since the position was `begin`.
  std::span<const uint8_t> since(size_t begin) const {
    return bytes_.subspan(begin, position_ - begin);
  }

  /// Throws unless `count` items of at least `least_bytes` each can still follow.
  void expect_items(uint64_t count, uint64_t least_bytes, std::string_view what) const {
    if (count > remaining() / least_bytes) {
      throw FormatError(
          fmt::format("{}: {}: {} items of at least {} bytes each are declared, {} bytes are left",
                      file_, what, count, least_bytes, remaining()));
    }
  }

 private:
  std::span<const uint8_t> bytes_;
  std::string file_;
  size_t position_ = 0;
};

}  // namespace kv
