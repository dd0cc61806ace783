#include "evaluate/record_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "evaluate/record_fields.h"
#include "evaluate/shallow_json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

// JSON has no NaN and no infinities.
OrderedJson to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

template <class T>
OrderedJson to_json(const T& value) {
  if constexpr (IsVector<T>::value) {
    OrderedJson array = OrderedJson::array();
    for (const auto& item : value) array.push_back(to_json(item));
    return array;
  } else if constexpr (std::is_same_v<T, float>) {
    return to_json(static_cast<double>(value));
  } else {
    return value;
  }
}

template <class Record>
std::string write(const Record& record) {
  OrderedJson object = {{"kind", kind_of(record)}, {"schema", kRecordSchema}};
  visit_fields(record, [&](const char* name, const auto& value) { object[name] = to_json(value); });
  try {
    return object.dump();
  } catch (const OrderedJson::exception& error) {
    throw ValueError(fmt::format("record \"{}\": {}", record.record_id, error.what()));
  }
}

/// One field of a line, with what a message needs.
struct Field {
  const std::string& where;
  std::string name;
  const OrderedJson& value;

  [[noreturn]] void refuse(std::string_view expected) const {
    std::string found = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    throw FormatError(
        fmt::format("{}: \"{}\": expected {}, found {}", where, name, expected, found));
  }
};

void from_json(const Field& field, std::string& out) {
  if (!field.value.is_string()) field.refuse("a string");
  out = field.value.get<std::string>();
}

void from_json(const Field& field, bool& out) {
  if (!field.value.is_boolean()) field.refuse("true or false");
  out = field.value.get<bool>();
}

void from_json(const Field& field, int64_t& out) {
  const OrderedJson& value = field.value;
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > kLargest)) {
    field.refuse("an integer");
  }
  out = value.get<int64_t>();
}

void from_json(const Field& field, double& out) {
  if (field.value == "nan") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else if (field.value == "inf") {
    out = std::numeric_limits<double>::infinity();
  } else if (field.value == "-inf") {
    out = -std::numeric_limits<double>::infinity();
  } else if (field.value.is_number()) {
    out = field.value.get<double>();
  } else {
    field.refuse("a number, \"nan\", \"inf\" or \"-inf\"");
  }
}

void from_json(const Field& field, float& out) {
  double value = 0;
  from_json(field, value);
  out = static_cast<float>(value);
}

template <class T>
void from_json(const Field& field, std::vector<T>& out) {
  if (!field.value.is_array()) field.refuse("an array");
  out.clear();
  out.reserve(field.value.size());
  for (const OrderedJson& item : field.value) {
    out.emplace_back();
    from_json(Field{field.where, fmt::format("{}[{}]", field.name, out.size() - 1), item},
              out.back());
  }
}

/// Refuses keys that the record does not have: their content would be lost without a word.
template <class Record>
void refuse_unknown_keys(const OrderedJson& object, const std::string& where,
                         const Record& record) {
  for (const auto& [key, value] : object.items()) {
    bool known = key == "kind" || key == "schema";
    visit_fields(record, [&](const char* name, const auto&) { known = known || key == name; });
    if (known) continue;
    throw FormatError(
        fmt::format("{}: \"{}\": not a field of kind \"{}\"", where, key, kind_of(record)));
  }
}

template <class Record>
std::string read_into(const OrderedJson& object, const std::string& where,
                      std::vector<Record>& out) {
  Record record;
  visit_fields(record, [&](const char* name, auto& value) {
    const auto found = object.find(name);
    if (found == object.end()) throw FormatError(fmt::format("{}: \"{}\" is missing", where, name));
    from_json(Field{where, name, *found}, value);
  });
  refuse_unknown_keys(object, where, record);
  out.push_back(std::move(record));
  return out.back().record_id;
}

OrderedJson parse_object(std::string_view json, const std::string& where) {
  OrderedJson object;
  try {
    object = parse_shallow<OrderedJson>(json);
  } catch (const FormatError& error) {
    throw FormatError(fmt::format("{}: {}", where, error.what()));
  } catch (const OrderedJson::exception& error) {
    throw FormatError(fmt::format("{}: not JSON: {}", where, error.what()));
  }
  if (!object.is_object()) Field{where, "line", object}.refuse("a JSON object");
  return object;
}

template <class T>
T required(const OrderedJson& object, const std::string& where, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw FormatError(fmt::format("{}: \"{}\" is missing", where, name));
  T out{};
  from_json(Field{where, name, *found}, out);
  return out;
}

}  // namespace

std::string record_to_json(const ExampleRecord& record) { return write(record); }
std::string record_to_json(const GenerationRecord& record) { return write(record); }
std::string record_to_json(const LogitRecord& record) { return write(record); }
std::string record_to_json(const RangeRecord& record) { return write(record); }
std::string record_to_json(const ArmRecord& record) { return write(record); }
std::string record_to_json(const AmaxRecord& record) { return write(record); }
std::string record_to_json(const CalibrationRecord& record) { return write(record); }
std::string record_to_json(const CapacityRecord& record) { return write(record); }
std::string record_to_json(const TimingRecord& record) { return write(record); }
std::string record_to_json(const SupportRecord& record) { return write(record); }
std::string record_to_json(const FactsRecord& record) { return write(record); }
std::string record_to_json(const ServedRecord& record) { return write(record); }
std::string record_to_json(const FirstTokenRecord& record) { return write(record); }
std::string record_to_json(const CountErrorRecord& record) { return write(record); }

std::string add_record_from_json(std::string_view json, const std::string& where, Records& out) {
  const OrderedJson object = parse_object(json, where);
  const auto schema = required<int64_t>(object, where, "schema");
  if (schema != kRecordSchema) {
    throw FormatError(
        fmt::format("{}: \"schema\": expected {}, found {}", where, kRecordSchema, schema));
  }
  const auto kind = required<std::string>(object, where, "kind");
  const auto is = [&](const auto& record) { return kind == kind_of(record); };
  if (is(ExampleRecord())) return read_into(object, where, out.examples);
  if (is(GenerationRecord())) return read_into(object, where, out.generations);
  if (is(LogitRecord())) return read_into(object, where, out.logits);
  if (is(RangeRecord())) return read_into(object, where, out.ranges);
  if (is(ArmRecord())) return read_into(object, where, out.arms);
  if (is(AmaxRecord())) return read_into(object, where, out.amaxes);
  if (is(CalibrationRecord())) return read_into(object, where, out.calibrations);
  if (is(CapacityRecord())) return read_into(object, where, out.capacities);
  if (is(TimingRecord())) return read_into(object, where, out.timings);
  if (is(SupportRecord())) return read_into(object, where, out.supports);
  if (is(FactsRecord())) return read_into(object, where, out.facts);
  if (is(ServedRecord())) return read_into(object, where, out.served);
  if (is(FirstTokenRecord())) return read_into(object, where, out.first_tokens);
  if (is(CountErrorRecord())) return read_into(object, where, out.count_errors);
  throw FormatError(
      fmt::format("{}: \"kind\": expected example, generation, logit, range, arm, amax, "
                  "calibration, capacity, timing, support, facts, served, first_token or "
                  "count_error, found \"{}\"",
                  where, kind));
}

}  // namespace kv
