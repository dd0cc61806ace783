#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/gguf_file.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/model_spec.h"
#include "kvscale/error.h"

namespace kv {

/// Reads keys of `architecture.` with the file's name in every message.
class GgufFields {
 public:
  GgufFields(const GgufFile& gguf, std::string architecture)
      : metadata_(gguf.metadata()),
        file_(gguf.file_name()),
        architecture_(std::move(architecture)) {}

  const std::string& file() const { return file_; }
  std::string key(std::string_view suffix) const {
    return fmt::format("{}.{}", architecture_, suffix);
  }

  std::optional<int> integer(std::string_view suffix, const IntRange& range) const {
    const std::string full = key(suffix);
    if (metadata_.is_array(full)) return same_for_all_layers(full, range);
    const std::optional<int64_t> value = metadata_.integer(full);
    if (!value) return std::nullopt;
    return expect_within(range, *value, file_, full);
  }

  int required_integer(std::string_view suffix, const IntRange& range) const {
    const std::optional<int> value = integer(suffix, range);
    if (!value) fail_absent(suffix);
    return *value;
  }

  std::optional<double> number(std::string_view suffix) const {
    return metadata_.number(key(suffix));
  }

  double required_number(std::string_view suffix) const {
    const std::optional<double> value = number(suffix);
    if (!value) fail_absent(suffix);
    return *value;
  }

  std::optional<std::string> text(std::string_view suffix) const {
    return metadata_.text(key(suffix));
  }

 private:
  int same_for_all_layers(const std::string& full, const IntRange& range) const {
    const std::vector<int64_t> list = metadata_.integers(full);
    const bool same =
        std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
    if (list.empty() || !same) {
      throw UnsupportedError(
          fmt::format("{}: {}: expected one value for all layers, found a list of {} that differ",
                      file_, full, list.size()));
    }
    return expect_within(range, list[0], file_, full);
  }

  [[noreturn]] void fail_absent(std::string_view suffix) const {
    throw FormatError(fmt::format("{}: {}: expected this key, found none", file_, key(suffix)));
  }

  const GgufMetadata& metadata_;
  std::string file_;
  std::string architecture_;
};

}  // namespace kv
