#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kv::jinja {

/// Strings as Python sees them: of code points, with its ideas of white space and case. All texts
/// are well-formed UTF-8.

/// str.isspace of one character.
bool is_space(uint32_t code_point);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

/// str.lstrip(chars), str.rstrip(chars).
std::string_view strip_left(std::string_view text, std::string_view chars);
std::string_view strip_right(std::string_view text, std::string_view chars);

size_t count_characters(std::string_view text);

/// One string a character.
std::vector<std::string_view> characters(std::string_view text);

/// Case by the simple mappings, and ß to SS.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

/// str.title: a letter after none in upper case, the others in lower case.
std::string to_title(std::string_view text);

/// First character in upper case, the others in lower case.
std::string capitalized(std::string_view text);

/// The title filter: words as Jinja parts them.
std::string word_title(std::string_view text);

/// str.split(): at runs of white space. limit < 0: all.
std::vector<std::string_view> split_at_space(std::string_view text, int64_t limit);

/// str.split(separator), which is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t limit);

/// The same, cut from the right.
std::vector<std::string_view> split_right_at(std::string_view text, std::string_view separator,
                                             int64_t limit);

std::vector<std::string_view> split_lines(std::string_view text);

/// str.replace; count < 0: all.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t count);

/// repr(text), quotes included.
std::string quoted(std::string_view text);

/// repr of a float.
std::string float_text(double value);

/// Whether the text is not empty and every character is of the class: alpha, digit, alnum, space.
bool is_all(std::string_view text, std::string_view character_class);

/// str.isupper, str.islower: some cased character, and none of the other case.
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

}  // namespace kv::jinja
