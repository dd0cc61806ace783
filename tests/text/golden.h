#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// Files that make_golden.py wrote to tests/golden/text.
std::string read_golden(const std::string& name);
nlohmann::json load_golden(const std::string& name);

/// A text in Latin-1, one character a byte, as the bytes.
std::string bytes_of(const std::string& latin1);

/// strings.json, as bytes.
const std::vector<std::string>& golden_strings();

/// A text as an escaped literal, for messages.
std::string escaped(std::string_view text);

}  // namespace kv
