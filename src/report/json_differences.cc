#include "report/json_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "evaluate/shallow_json.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

class Differences {
 public:
  explicit Differences(size_t most) : most_(most) {}

  void walk(const std::string& path, const OrderedJson& expected, const OrderedJson& found) {
    if (lines_.size() >= most_ || expected == found) return;
    if (expected.is_object() && found.is_object()) return walk_object(path, expected, found);
    if (expected.is_array() && found.is_array()) return walk_array(path, expected, found);
    add(path, brief(expected), brief(found));
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  static std::string brief(const OrderedJson& value) {
    std::string text = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    return text;
  }
  void add(const std::string& path, const std::string& expected, const std::string& found) {
    if (lines_.size() >= most_) return;
    lines_.push_back(fmt::format("{}: expected {}, found {}", path.empty() ? "the whole" : path,
                                 expected, found));
  }
  void walk_object(const std::string& path, const OrderedJson& expected, const OrderedJson& found) {
    const std::string dot = path.empty() ? "" : path + ".";
    for (const auto& [key, value] : expected.items()) {
      const auto other = found.find(key);
      if (other == found.end()) {
        add(dot + key, brief(value), "nothing");
      } else {
        walk(dot + key, value, *other);
      }
    }
    for (const auto& [key, value] : found.items()) {
      if (!expected.contains(key)) add(dot + key, "nothing", brief(value));
    }
  }
  void walk_array(const std::string& path, const OrderedJson& expected, const OrderedJson& found) {
    if (expected.size() != found.size()) {
      add(path, fmt::format("{} items", expected.size()), fmt::format("{}", found.size()));
    }
    for (size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
      walk(fmt::format("{}[{}]", path, i), expected[i], found[i]);
    }
  }

  size_t most_;
  std::vector<std::string> lines_;
};

std::string first_byte(const std::string& expected, const std::string& found) {
  const size_t size = std::min(expected.size(), found.size());
  size_t at = 0;
  while (at < size && expected[at] == found[at]) ++at;
  return fmt::format("byte {}: expected {} bytes, found {}, the same up to there", at,
                     expected.size(), found.size());
}

/// Nothing where the text is no JSON, or nested so deep that no decision is.
std::optional<OrderedJson> parsed(const std::string& text) {
  try {
    return parse_shallow<OrderedJson>(text);
  } catch (const OrderedJson::exception&) {
  } catch (const FormatError&) {
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> json_differences(const std::string& expected, const std::string& found,
                                          size_t most) {
  if (expected == found) return {};
  const auto a = parsed(expected), b = parsed(found);
  if (!a || !b) return {first_byte(expected, found)};
  Differences differences(most);
  differences.walk("", *a, *b);
  std::vector<std::string> out = differences.take();
  if (out.empty()) out.push_back(first_byte(expected, found));
  return out;
}

}  // namespace kv
