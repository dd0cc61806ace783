#include "text/jinja_escape.h"

#include "text/jinja_lexer.h"
#include "text/utf8.h"

namespace kv::jinja {
namespace {

size_t append_code_point(std::string_view in, size_t at, size_t digits, int base, int line,
                         std::string& text) {
  uint32_t value = 0;
  size_t n = 0;
  for (; n < digits && at + n < in.size(); ++n) {
    const char c = in[at + n];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : 99;
    if (digit >= base) break;
    value = value * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit);
  }
  const bool is_whole = base == 8 ? n > 0 : n == digits;
  if (!is_whole || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    throw_syntax(line, "escape of no character in a string");
  }
  append_utf8(text, value);
  return at + n;
}

}  // namespace

size_t append_escape(std::string_view in, size_t at, int line, std::string& text) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char letter = in[at];
  const size_t known = kLetters.find(letter);
  if (known != std::string_view::npos) {
    text += kMeanings[known];
    return at + 1;
  }
  if (letter == '\n') return at + 1;  // the line goes on
  if (letter == 'x') return append_code_point(in, at + 1, 2, 16, line, text);
  if (letter == 'u') return append_code_point(in, at + 1, 4, 16, line, text);
  if (letter == 'U') return append_code_point(in, at + 1, 8, 16, line, text);
  if (letter >= '0' && letter <= '7') return append_code_point(in, at, 3, 8, line, text);
  if (letter == 'N') throw_unsupported(line, "escape \\N{...} in a string is not served");
  text += '\\';  // Python keeps what it does not know
  return at;
}

}  // namespace kv::jinja
