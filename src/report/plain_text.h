#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// Text that came from outside (model names, prompts, paths), made fit for a terminal: ill-formed
/// UTF-8 and control characters, which could move the cursor or recolour the screen, become U+FFFD;
/// newlines and tabs become spaces.
std::string printable(std::string_view text);

/// Columns that printable text takes on a terminal; wide East Asian characters and emoji take two.
int columns(std::string_view text);

/// Lines of at most `width` columns, broken at spaces and, where a word is wider, inside it.
/// Later lines begin with `indent` spaces. Never empty.
std::vector<std::string> wrap(std::string_view text, int width, int indent = 0);

}  // namespace kv
