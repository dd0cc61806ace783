#include "checkpoint/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr int kMostDepth = 64;
constexpr size_t kMostShown = 120;  // characters of a value in a message

// Keys seen so far in each object that is open.
class KeyWatch {
 public:
  explicit KeyWatch(const std::string& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMostDepth) {
      throw FormatError(fmt::format("{}: nested deeper than {}", file_, kMostDepth));
    }
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) expect_new(parsed.get_ref<const std::string&>());
    return true;
  }

 private:
  void expect_new(const std::string& key) {
    if (open_.back().insert(key).second) return;
    throw FormatError(fmt::format("{}: key {:?} occurs twice in one object", file_,
                                  std::string_view(key).substr(0, kMostShown)));
  }

  const std::string& file_;
  std::vector<std::unordered_set<std::string>> open_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  KeyWatch watch(file);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(watch));
  } catch (const Json::exception& error) {
    throw FormatError(
        fmt::format("{}: no valid JSON: {}", file, std::string(error.what()).substr(0, 200)));
  }
}

JsonFields::JsonFields(const Json& object, std::string file, std::string prefix)
    : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  throw FormatError(fmt::format("{}: {}: expected an object, found {}", file_,
                                prefix_.empty() ? "the whole file" : prefix_.substr(0, prefix_.size() - 1), shortened(object)));
}

const Json* JsonFields::find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

JsonFields JsonFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail_absent(key);
  return JsonFields(*value, file_, field(key) + ".");
}

std::optional<int> JsonFields::integer(std::string_view key, const IntRange& range) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_integer(*value, key, range);
}

int JsonFields::required_integer(std::string_view key, const IntRange& range) const {
  const std::optional<int> value = integer(key, range);
  if (!value) fail_absent(key);
  return *value;
}

std::optional<double> JsonFields::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(key, "a number");
  return value->get<double>();
}

double JsonFields::required_number(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (!value) fail_absent(key);
  return *value;
}

bool JsonFields::boolean(std::string_view key, bool absent) const {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

std::vector<int> JsonFields::integers(std::string_view key, const IntRange& range) const {
  std::vector<int> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) return {as_integer(*value, key, range)};
  for (const Json& item : *value) list.push_back(as_integer(item, key, range));
  return list;
}

int JsonFields::as_integer(const Json& value, std::string_view key, const IntRange& range) const {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() < (uint64_t{1} << 63));
  if (!fits) fail(key, fmt::format("an integer of {} to {}", range.least, range.most));
  return expect_within(range, value.get<int64_t>(), file_, field(key));
}

void JsonFields::fail(std::string_view key, std::string_view expected) const {
  const Json* value = find(key);
  throw FormatError(fmt::format("{}: {}: expected {}, found {}", file_, field(key), expected,
                                value == nullptr ? "nothing" : shortened(*value)));
}

void JsonFields::fail_absent(std::string_view key) const {
  throw FormatError(fmt::format("{}: {}: expected this key, found none", file_, field(key)));
}

std::string shortened(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

}  // namespace kv
