#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// "3,7-9": ascending ids, runs by their ends.
std::string ranges_text(const std::vector<int32_t>& ids);

/// Reads ranges_text(); nothing when the text is not exactly what that writes.
std::optional<std::vector<int32_t>> ids_of_ranges(std::string_view text);

}  // namespace kv
