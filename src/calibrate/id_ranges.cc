#include "calibrate/id_ranges.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace kv {

std::string ranges_text(const std::vector<int32_t>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", ids[i]);
    if (last > i) out += fmt::format("-{}", ids[last]);
    i = last + 1;
  }
  return out;
}

std::optional<std::vector<int32_t>> ids_of_ranges(std::string_view text) {
  constexpr int32_t kMostIds = 1 << 24;
  std::vector<int32_t> out;
  const std::string_view whole = text;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = part.find('-');
    int32_t first = -1, last = -1;
    const std::string_view left = part.substr(0, dash);
    std::from_chars(left.data(), left.data() + left.size(), first);
    last = first;
    if (dash != std::string_view::npos) {
      const std::string_view right = part.substr(dash + 1);
      last = -1;
      std::from_chars(right.data(), right.data() + right.size(), last);
    }
    if (first < 0 || last < first || last >= kMostIds) return std::nullopt;
    for (int32_t id = first; id <= last; ++id) out.push_back(id);
    if (std::ssize(out) > kMostIds) return std::nullopt;
  }
  if (ranges_text(out) != whole || !std::ranges::is_sorted(out)) return std::nullopt;
  return out;
}

}  // namespace kv
