#include "checkpoint/gguf_metadata.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "checkpoint/byte_reader.h"
#include "kvscale/error.h"

namespace kv {
namespace {

constexpr uint64_t kMostNesting = 4;  // arrays of arrays: no file has any, the format allows them
// The least bytes that an entry takes: key length, type, one byte of value.
constexpr uint64_t kLeastEntryBytes = 8 + 4 + 1;

// Bytes of a type of fixed size, 0 for strings and arrays.
uint64_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::string_view type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

GgufType read_type(ByteReader& reader, std::string_view key) {
  const auto type = reader.number<uint32_t>("a value's type");
  if (type <= static_cast<uint32_t>(GgufType::kF64)) return static_cast<GgufType>(type);
  throw FormatError(
      fmt::format("{}: key {:?}: expected a type of 0 to 12, found {}", reader.file(), key, type));
}

GgufValue read_value(ByteReader& reader, std::string_view key, GgufType type, uint64_t depth = 0);

// Walks over the elements of an array, whose type and count come first.
GgufValue read_array(ByteReader& reader, std::string_view key, uint64_t depth) {
  if (depth >= kMostNesting) {
    throw FormatError(fmt::format("{}: key {:?}: arrays are nested more than {} deep",
                                  reader.file(), key, kMostNesting));
  }
  GgufValue value{GgufType::kArray, read_type(reader, key), 0, {}};
  value.count = reader.number<uint64_t>("an array's length");
  const uint64_t least = value.element == GgufType::kArray    ? 12  // element type and count
                         : value.element == GgufType::kString ? 8   // length
                                                              : fixed_size(value.element);
  reader.expect_items(value.count, least, fmt::format("key {:?}", key));
  const size_t begin = reader.position();
  if (const uint64_t size = fixed_size(value.element); size > 0) {
    reader.take(value.count * size, "an array");
  } else {
    for (uint64_t i = 0; i < value.count; ++i) {
      read_value(reader, key, value.element, depth + 1);
    }
  }
  value.payload = reader.since(begin);
  return value;
}

GgufValue read_value(ByteReader& reader, std::string_view key, GgufType type, uint64_t depth) {
  if (type == GgufType::kArray) return read_array(reader, key, depth);
  GgufValue value{type, GgufType::kU8, 0, {}};
  if (type == GgufType::kString) {
    const std::string_view text = reader.string("a string");
    value.payload = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  } else {
    value.payload = reader.take(fixed_size(type), "a value");
  }
  return value;
}

template <class T>
T number_at(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// An integer of any type; nullopt for other types and for what 63 bits cannot hold.
std::optional<int64_t> integer_at(GgufType type, const uint8_t* bytes) {
  switch (type) {
    case GgufType::kU8:
      return number_at<uint8_t>(bytes);
    case GgufType::kI8:
      return number_at<int8_t>(bytes);
    case GgufType::kU16:
      return number_at<uint16_t>(bytes);
    case GgufType::kI16:
      return number_at<int16_t>(bytes);
    case GgufType::kU32:
      return number_at<uint32_t>(bytes);
    case GgufType::kI32:
      return number_at<int32_t>(bytes);
    case GgufType::kI64:
      return number_at<int64_t>(bytes);
    case GgufType::kU64: {
      const auto value = number_at<uint64_t>(bytes);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

GgufMetadata::GgufMetadata(ByteReader& reader, uint64_t count) : file_(reader.file()) {
  reader.expect_items(count, kLeastEntryBytes, "metadata");
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = reader.string("a key");
    const GgufType type = read_type(reader, key.substr(0, 100));
    const GgufValue value = read_value(reader, key.substr(0, 100), type);
    if (!values_.emplace(key, value).second) {
      throw FormatError(fmt::format("{}: key {:?} occurs twice", file_, key.substr(0, 100)));
    }
  }
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void GgufMetadata::fail_type(std::string_view key, std::string_view expected,
                             const GgufValue& found) const {
  const std::string of = found.type == GgufType::kArray
                             ? fmt::format(" of {}", type_name(found.element))
                             : std::string();
  throw FormatError(fmt::format("{}: key {:?}: expected {}, found {}{}", file_, key, expected,
                                type_name(found.type), of));
}

std::optional<int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = integer_at(value->type, value->payload.data());
  if (!number) fail_type(key, "an integer of at most 63 bits", *value);
  return number;
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kF32) return number_at<float>(value->payload.data());
  if (value->type == GgufType::kF64) return number_at<double>(value->payload.data());
  const std::optional<int64_t> number = integer_at(value->type, value->payload.data());
  if (!number) fail_type(key, "a number", *value);
  return static_cast<double>(*number);
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) fail_type(key, "a bool", *value);
  return value->payload[0] != 0;
}

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) fail_type(key, "a string", *value);
  return std::string(value->payload.begin(), value->payload.end());
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  std::vector<int64_t> numbers;
  const GgufValue* value = find(key);
  if (value == nullptr) return numbers;
  if (value->type != GgufType::kArray) fail_type(key, "an array of integers", *value);
  const uint64_t size = fixed_size(value->element);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number =
        integer_at(value->element, value->payload.data() + i * size);
    if (!number) fail_type(key, "an array of integers", *value);
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<float> GgufMetadata::numbers(std::string_view key) const {
  std::vector<float> numbers;
  const GgufValue* value = find(key);
  if (value == nullptr) return numbers;
  if (value->type != GgufType::kArray || value->element != GgufType::kF32) {
    fail_type(key, "an array of 32-bit floats", *value);
  }
  for (uint64_t i = 0; i < value->count; ++i) {
    numbers.push_back(number_at<float>(value->payload.data() + i * sizeof(float)));
  }
  return numbers;
}

std::vector<std::string> GgufMetadata::texts(std::string_view key) const {
  std::vector<std::string> list;
  const GgufValue* value = find(key);
  if (value == nullptr) return list;
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    fail_type(key, "an array of strings", *value);
  }
  ByteReader reader(value->payload, file_);
  list.reserve(value->count);  // walked over before: every string takes at least 8 bytes
  for (uint64_t i = 0; i < value->count; ++i) list.emplace_back(reader.string(key));
  return list;
}

uint64_t GgufMetadata::array_size(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return 0;
  if (value->type != GgufType::kArray) fail_type(key, "an array", *value);
  return value->count;
}

bool GgufMetadata::is_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value != nullptr && value->type == GgufType::kArray;
}

}  // namespace kv
