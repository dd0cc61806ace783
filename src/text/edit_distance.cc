#include "text/edit_distance.h"

#include <algorithm>
#include <vector>

namespace kv {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known,
                              size_t most) {
  std::string_view best;
  size_t fewest = most + 1;
  for (const std::string_view candidate : known) {
    // More edits than the lengths differ by are needed anyway.
    if (word.size() > candidate.size() + most) continue;
    const size_t edits = edit_distance(word, candidate);
    if (edits >= fewest || edits >= candidate.size()) continue;
    best = candidate;
    fewest = edits;
  }
  return best;
}

}  // namespace kv
