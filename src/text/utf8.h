#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kv {

/// One code point and the bytes it takes.
struct CodePoint {
  uint32_t value;
  uint32_t size;
};

/// The code point at the beginning of well-formed, non-empty `text`.
CodePoint first_code_point(std::string_view text);

/// Appends a code point (at most 0x10FFFF, no surrogate) as UTF-8.
void append_utf8(std::string& out, uint32_t code_point);

/// Bytes of the longest prefix that is well-formed UTF-8 (Unicode 15, table 3-7).
size_t well_formed_prefix(std::string_view text);

/// The text with one U+FFFD for each maximal subpart of an ill-formed sequence, which is what
/// Python's bytes.decode("utf-8", "replace") does.
std::string replace_ill_formed(std::string_view text);

}  // namespace kv
