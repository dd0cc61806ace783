#include "report/plain_text.h"

#include <algorithm>

#include "text/utf8.h"

namespace kv {
namespace {

bool is_control(uint32_t c) {
  // C0, DEL, C1; then the characters that reorder a line (bidirectional embeddings and isolates).
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

int columns_of(uint32_t c) {
  // Conservative: the wide blocks of Unicode's East Asian Width, from Hangul on.
  const bool wide = (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
                    (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
                    (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
                    (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f000 && c <= 0x1faff) ||
                    (c >= 0x20000 && c <= 0x3fffd);
  return wide ? 2 : 1;
}

/// Bytes of the longest beginning that takes at most `width` columns; at least one character.
size_t fitting_prefix(std::string_view text, int width) {
  size_t bytes = 0;
  for (int used = 0; bytes < text.size();) {
    const CodePoint c = first_code_point(text.substr(bytes));
    used += columns_of(c.value);
    if (used > width && bytes > 0) break;
    bytes += c.size;
  }
  return bytes;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  const std::string clean = replace_ill_formed(text);
  for (size_t i = 0; i < clean.size();) {
    const CodePoint c = first_code_point(std::string_view(clean).substr(i));
    if (c.value == '\n' || c.value == '\t' || c.value == '\r') {
      out += ' ';
    } else if (is_control(c.value)) {
      append_utf8(out, 0xfffd);
    } else {
      out.append(clean, i, c.size);
    }
    i += c.size;
  }
  return out;
}

int columns(std::string_view text) {
  int sum = 0;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    sum += columns_of(c.value);
    text.remove_prefix(c.size);
  }
  return sum;
}

std::vector<std::string> wrap(std::string_view text, int width, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::vector<std::string> lines(1);
  const auto fresh = [&] { return lines.back().empty() || lines.back() == margin; };
  while (!text.empty()) {
    std::string_view word = text.substr(0, std::min(text.find(' '), text.size()));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    if (!fresh() && columns(lines.back()) + 1 + columns(word) > width) lines.push_back(margin);
    if (!fresh()) lines.back() += ' ';
    while (columns(lines.back()) + columns(word) > width) {
      const size_t bytes = fitting_prefix(word, std::max(1, width - columns(lines.back())));
      lines.back() += word.substr(0, bytes);
      word.remove_prefix(bytes);
      if (word.empty()) break;
      lines.push_back(margin);
    }
    lines.back() += word;
  }
  return lines;
}

}  // namespace kv
