#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace kv {

/// Edits (insert, remove, replace a character) from one word to the other.
size_t edit_distance(std::string_view a, std::string_view b);

/// The known word with the fewest edits from `word`, the first one of several; empty when it takes
/// more than `most` edits or as many as the known word has characters.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known,
                              size_t most = 2);

}  // namespace kv
