#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kv {

/// A value of a JSON file together with its path, so that every complaint names both. The path
/// of the root is the file's name.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  /// The member `key` of an object. Throws FormatError when this is no object or has none.
  JsonField at(const std::string& key) const;

  /// The member `key`, or a null when there is none.
  JsonField get(const std::string& key) const;

  /// The element `index`, which exists, of an array.
  JsonField at(size_t index) const;

  /// The number of elements. Throws FormatError when this is no array.
  size_t array_size() const;

  /// These throw FormatError when the value has another type or does not fit.
  const std::string& as_string() const;
  bool as_bool() const;
  int32_t as_id() const;  // a whole number, 0 to 2^31 - 2
  void expect_object() const;

  bool bool_or(const std::string& key, bool absent) const;

  /// FormatError "<path>: expected <what>, found <the value's type>".
  [[noreturn]] void throw_expected(const std::string& what) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace kv
