#pragma once

#include <string>
#include <string_view>

#include "evaluate/record_log.h"

namespace kv {

/// The record as one JSON object without a newline: "kind" and "schema" first, then its fields.
/// Throws ValueError when a text in it is not UTF-8.
std::string record_to_json(const ExampleRecord& record);
std::string record_to_json(const GenerationRecord& record);
std::string record_to_json(const LogitRecord& record);
std::string record_to_json(const RangeRecord& record);
std::string record_to_json(const ArmRecord& record);
std::string record_to_json(const AmaxRecord& record);
std::string record_to_json(const CalibrationRecord& record);
std::string record_to_json(const CapacityRecord& record);
std::string record_to_json(const TimingRecord& record);
std::string record_to_json(const SupportRecord& record);
std::string record_to_json(const FactsRecord& record);
std::string record_to_json(const ServedRecord& record);
std::string record_to_json(const FirstTokenRecord& record);
std::string record_to_json(const CountErrorRecord& record);

/// Reads one such object, adds it to the records of its kind and returns its id. `where` ("file:
/// line 12") begins every message. Throws FormatError.
std::string add_record_from_json(std::string_view json, const std::string& where, Records& out);

}  // namespace kv
