#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace kv::jinja {
namespace {

utf8proc_category_t category_of(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

uint32_t upper_of(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

uint32_t lower_of(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool is_letter(uint32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_cased(uint32_t c) {
  return upper_of(c) != c || lower_of(c) != c || category_of(c) == UTF8PROC_CATEGORY_LL;
}

template <class Each>
void for_each(std::string_view text, const Each& each) {
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    each(c.value);
    text.remove_prefix(c.size);
  }
}

void append_upper(std::string& out, uint32_t c) {
  constexpr uint32_t kSharpS = 0xDF;
  if (c == kSharpS) {
    out += "SS";
  } else {
    append_utf8(out, upper_of(c));
  }
}

CodePoint last_code_point(std::string_view text) {
  size_t begin = text.size() - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_code_point(text.substr(begin));
}

bool holds(std::string_view chars, std::string_view character) {
  return chars.find(character) != std::string_view::npos;
}

}  // namespace

bool is_space(uint32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x9 && c <= 0xD) || c >= 0x1C;
  if (c < 0x80) return false;
  const utf8proc_category_t category = category_of(c);
  return c == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (!is_space(c.value)) break;
    text.remove_prefix(c.size);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = last_code_point(text);
    if (!is_space(c.value)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (!holds(chars, text.substr(0, c.size))) break;
    text.remove_prefix(c.size);
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    const CodePoint c = last_code_point(text);
    if (!holds(chars, text.substr(text.size() - c.size))) break;
    text.remove_suffix(c.size);
  }
  return text;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  out.reserve(text.size());
  while (!text.empty()) {
    out.push_back(text.substr(0, first_code_point(text).size));
    text.remove_prefix(out.back().size());
  }
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each(text, [&](uint32_t c) { append_upper(out, c); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each(text, [&](uint32_t c) { append_utf8(out, lower_of(c)); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each(text, [&](uint32_t c) {
    if (in_word) {
      append_utf8(out, lower_of(c));
    } else {
      append_upper(out, c);
    }
    in_word = is_cased(c);
  });
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = first_code_point(text).size;
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string word_title(std::string_view text) {
  // Words begin after white space, hyphens and opening brackets.
  std::string out;
  size_t begin = 0;
  for (size_t at = 0; at <= text.size();) {
    const bool is_end = at == text.size();
    const CodePoint c = is_end ? CodePoint{0, 1} : first_code_point(text.substr(at));
    if (is_end || is_space(c.value) || holds("-({[<", text.substr(at, c.size))) {
      out += capitalized(text.substr(begin, at - begin));
      if (!is_end) out += text.substr(at, c.size);
      begin = at + c.size;
    }
    at += c.size;
  }
  return out;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> out;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (limit >= 0 && std::ssize(out) == limit) {
      out.push_back(strip_right(text));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint c = first_code_point(text.substr(end));
      if (is_space(c.value)) break;
      end += c.size;
    }
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t limit) {
  std::vector<std::string_view> out;
  while (limit < 0 || std::ssize(out) < limit) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    out.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  out.push_back(text);
  return out;
}

std::vector<std::string_view> split_right_at(std::string_view text, std::string_view separator,
                                             int64_t limit) {
  std::vector<std::string_view> out;
  while (limit < 0 || std::ssize(out) < limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    out.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  out.push_back(text);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    const bool ends = (c.value >= 0xA && c.value <= 0xD) || (c.value >= 0x1C && c.value <= 0x1E) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    at += c.size;
    if (!ends) continue;
    out.push_back(text.substr(begin, at - c.size - begin));
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    begin = at;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t count) {
  std::string out;
  if (from.empty()) {  // before every character, and at the end
    for (const std::string_view c : characters(text)) {
      if (count-- != 0) out += to;
      out += c;
    }
    if (count != 0) out += to;
    return out;
  }
  while (count-- != 0) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

bool is_all(std::string_view text, std::string_view character_class) {
  bool all = !text.empty();
  for_each(text, [&](uint32_t c) {
    const bool is_digit = category_of(c) == UTF8PROC_CATEGORY_ND;
    all &= character_class == "alpha"   ? is_letter(c)
           : character_class == "digit" ? is_digit
           : character_class == "alnum" ? is_letter(c) || is_digit
                                        : is_space(c);
  });
  return all;
}

bool is_upper(std::string_view text) { return to_upper(text) == text && to_lower(text) != text; }

bool is_lower(std::string_view text) { return to_lower(text) == text && to_upper(text) != text; }

}  // namespace kv::jinja
