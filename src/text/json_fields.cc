#include "text/json_fields.h"

#include <fmt/format.h>

#include "kvscale/error.h"

namespace kv {
namespace {

const nlohmann::json kNull;

}  // namespace

JsonField JsonField::at(const std::string& key) const {
  expect_object();
  const auto member = value_->find(key);
  if (member == value_->end()) {
    throw FormatError(fmt::format("{}: \"{}\" is missing", path_, key));
  }
  return {*member, path_ + "." + key};
}

JsonField JsonField::get(const std::string& key) const {
  expect_object();
  const auto member = value_->find(key);
  return {member == value_->end() ? kNull : *member, path_ + "." + key};
}

JsonField JsonField::at(size_t index) const {
  return {(*value_)[index], fmt::format("{}[{}]", path_, index)};
}

size_t JsonField::array_size() const {
  if (!value_->is_array()) throw_expected("an array");
  return value_->size();
}

const std::string& JsonField::as_string() const {
  if (!value_->is_string()) throw_expected("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::as_bool() const {
  if (!value_->is_boolean()) throw_expected("true or false");
  return value_->get<bool>();
}

int32_t JsonField::as_id() const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= INT32_MAX) {
    throw_expected("a token id (0 to 2147483646)");
  }
  return static_cast<int32_t>(value_->get<uint64_t>());
}

void JsonField::expect_object() const {
  if (!value_->is_object()) throw_expected("an object");
}

bool JsonField::bool_or(const std::string& key, bool absent) const {
  const JsonField field = get(key);
  return field.is_null() ? absent : field.as_bool();
}

void JsonField::throw_expected(const std::string& what) const {
  throw FormatError(fmt::format("{}: expected {}, found {}", path_, what, value_->type_name()));
}

}  // namespace kv
