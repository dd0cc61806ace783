#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

class ByteReader;

/// Types of metadata values, by GGUF's numbers.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

/// A metadata value that has been walked over, so its lengths are known to be true.
struct GgufValue {
  GgufType type;
  GgufType element = GgufType::kU8;  // of arrays
  uint64_t count = 0;                // of arrays
  std::span<const uint8_t> payload;  // without type and count
};

/// The metadata of a GGUF file: keys and values, pointing into the mapped file.
///
/// The getters return nullopt (or an empty list) for a key that is not there and throw FormatError,
/// naming file and key, when its type is another.
class GgufMetadata {
 public:
  GgufMetadata() = default;

  /// Walks over `count` entries. Throws FormatError when a length reaches past the file, a type is
  /// unknown or a key repeats.
  GgufMetadata(ByteReader& reader, uint64_t count);

  bool has(std::string_view key) const { return values_.contains(key); }
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // floats and integers
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;  // 32-bit floats
  std::vector<std::string> texts(std::string_view key) const;

  /// Elements of an array, 0 when the key is not there.
  uint64_t array_size(std::string_view key) const;
  bool is_array(std::string_view key) const;

 private:
  const GgufValue* find(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view expected,
                              const GgufValue& found) const;

  std::string file_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace kv
