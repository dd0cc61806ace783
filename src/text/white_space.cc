#include "text/white_space.h"

#include <utf8proc.h>

#include <algorithm>

namespace kv {

CodePoint code_point_before(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_code_point(text.substr(begin));
}

bool is_white_space(CodePoint c) {
  if (c.value <= 0x20) return c.value == 0x20 || (c.value >= 0x9 && c.value <= 0xD);
  if (c.value == 0x85) return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c.value));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

size_t skip_white_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = first_code_point(text.substr(at));
    if (!is_white_space(c)) break;
    at += c.size;
  }
  return at;
}

size_t skip_white_space_back(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const CodePoint c = code_point_before(text, at);
    if (!is_white_space(c)) break;
    at -= c.size;
  }
  return std::max(at, limit);
}

}  // namespace kv
