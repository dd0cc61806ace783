#include "checkpoint/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostDepth = 64;
constexpr size_t kMostShown = 120;  // characters of a value in a message

// Builds the value while it is read, so that a key is looked for once, where it is put.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const std::string& file) : file_(file) {}

  Json& value() { return root_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    const auto [place, is_new] = open_.back()->emplace(std::move(key), nullptr);
    if (!is_new) {
      throw FormatError(fmt::format("{}: key {:?} occurs twice in one object", file_,
                                    std::string_view(place.key()).substr(0, kMostShown)));
    }
    field_ = &*place;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    throw FormatError(
        fmt::format("{}: no valid JSON: {}", file_, std::string(error.what()).substr(0, 200)));
  }

 private:
  // Puts a value where the text has it; returns where it lies now.
  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return open_.back()->back();
    }
    return *field_ = std::move(value);
  }

  bool add(Json value) {
    put(std::move(value));
    return true;
  }

  bool open(Json empty) {
    if (open_.size() == kMostDepth) {
      throw FormatError(fmt::format("{}: nested deeper than {}", file_, kMostDepth));
    }
    open_.push_back(&put(std::move(empty)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  Json root_;
  std::vector<Json*> open_;  // the objects and lists around what is read next
  Json* field_ = nullptr;    // of the innermost object, when that is one
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  Builder builder(file);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.value());
}

JsonFields::JsonFields(const Json& object, std::string file, std::string prefix)
    : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  throw FormatError(
      fmt::format("{}: {}: expected an object, found {}", file_,
                  prefix_.empty() ? "the whole file" : prefix_.substr(0, prefix_.size() - 1),
                  shortened(object)));
}

const Json* JsonFields::find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::is_null(std::string_view key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
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
