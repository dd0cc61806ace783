#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/facts.h"

namespace kv {

/// A number, or null when it is not finite: JSON has no other way to say it.
nlohmann::ordered_json json_number(double value);
nlohmann::ordered_json json_numbers(const std::vector<double>& values);

nlohmann::ordered_json json_of(const ModelFacts& model);
nlohmann::ordered_json json_of(const PromptFacts& prompts);
nlohmann::ordered_json json_of(const RunFacts& run);

/// Indented by two spaces; ill-formed UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace kv
