#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/model_spec.h"

namespace kv {

/// Parses a whole JSON text. Throws FormatError naming `file` when it is no JSON, when an object
/// repeats a key (readers differ in which one counts) or when it is nested deeper than 64.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// An object of a JSON file, with getters that throw FormatError naming file, key, expected, found.
/// A key that is null counts as absent. Does not own the object.
class JsonFields {
 public:
  /// `prefix` is put before keys in messages ("rope_scaling."). Throws when it is no object.
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix = "");

  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool is_null(std::string_view key) const;  // there, but null
  const nlohmann::json* find(std::string_view key) const;
  JsonFields object(std::string_view key) const;  // throws when it is absent

  std::optional<int> integer(std::string_view key, const IntRange& range) const;
  int required_integer(std::string_view key, const IntRange& range) const;
  std::optional<double> number(std::string_view key) const;
  double required_number(std::string_view key) const;
  bool boolean(std::string_view key, bool absent) const;
  std::optional<std::string> text(std::string_view key) const;

  /// An integer or a list of them; empty when absent.
  std::vector<int> integers(std::string_view key, const IntRange& range) const;

  const std::string& file() const { return file_; }
  std::string field(std::string_view key) const { return prefix_ + std::string(key); }
  [[noreturn]] void fail(std::string_view key, std::string_view expected) const;

 private:
  int as_integer(const nlohmann::json& value, std::string_view key, const IntRange& range) const;
  [[noreturn]] void fail_absent(std::string_view key) const;

  const nlohmann::json* object_;
  std::string file_;
  std::string prefix_;
};

/// A value as it stands in the file, cut to what a message can hold.
std::string shortened(const nlohmann::json& value);

}  // namespace kv
