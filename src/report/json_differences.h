#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kv {

/// Where two JSON texts differ, at most `most` lines, "tables[0].buckets[1].n: expected 200, found
/// 199": `expected` is what was rebuilt. Empty when the bytes are the same; text that is no JSON,
/// or the same JSON in other bytes, is told by the first byte that differs.
std::vector<std::string> json_differences(const std::string& expected, const std::string& found,
                                          size_t most = 10);

}  // namespace kv
