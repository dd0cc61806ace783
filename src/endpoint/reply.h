#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kv {

/// A value inside a server's reply, with the path that leads to it. Getters throw FormatError
/// naming reply, path, expected and found. Does not own the value.
class Reply {
 public:
  /// `where` names server and route.
  Reply(const nlohmann::json& value, std::string where) : value_(&value), path_(std::move(where)) {}

  bool is_null() const;
  bool has(const std::string& key) const;  // there and not null
  Reply at(const std::string& key) const;  // of an object
  Reply at(size_t index) const;            // of an array
  size_t size() const;                     // of an array

  std::string text() const;
  int64_t integer(int64_t least, int64_t most) const;
  bool boolean() const;
  /// A number of at most 0; -9999 and below is minus infinity, as vLLM writes it.
  double logprob() const;
  int32_t token() const { return static_cast<int32_t>(integer(0, INT32_MAX)); }
  std::vector<int32_t> tokens() const;

  const nlohmann::json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(const std::string& expected) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace kv
