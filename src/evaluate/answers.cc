#include "evaluate/answers.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "kvscale/error.h"

namespace kv::answers {
namespace {

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Characters of the number that begins at the front of `text` (a digit or a point before one),
/// without commas into `digits`; 0 when there is none.
size_t scan_number(std::string_view text, std::string& digits) {
  const auto at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  size_t i = 0, group = 0;
  while (is_digit(at(i))) digits += text[i++];
  // A comma belongs to the number only where three digits, and no fourth, follow it.
  while (i > 0 && i - group <= 3 && at(i) == ',' && is_digit(at(i + 1)) && is_digit(at(i + 2)) &&
         is_digit(at(i + 3)) && !is_digit(at(i + 4))) {
    digits.append(text.substr(i + 1, 3));
    i += 4;
    group = i - 3;
  }
  if (at(i) == '.' && is_digit(at(i + 1))) {
    digits += text[i++];
    while (is_digit(at(i))) digits += text[i++];
  }
  if (digits.empty()) return 0;
  const size_t sign = at(i + 1) == '-' || at(i + 1) == '+' ? 1 : 0;
  if ((at(i) == 'e' || at(i) == 'E') && is_digit(at(i + 1 + sign))) {
    digits += 'e';
    if (at(i + 1) == '-') digits += '-';
    i += 1 + sign;
    while (is_digit(at(i))) digits += text[i++];
  }
  return i;
}

std::optional<double> to_double(const std::string& digits) {
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

using Json = nlohmann::json;

/// Null pointer when the text is no JSON or too deep.
std::unique_ptr<Json> parse_json(std::string_view text) {
  bool is_too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    is_too_deep = is_too_deep || depth > kDeepestJson;
    return !is_too_deep;
  };
  auto value = std::make_unique<Json>(Json::parse(text, watch, false));
  if (value->is_discarded() || is_too_deep) return nullptr;
  return value;
}

/// Length of the bracketed piece at the front of `text`, strings respected; 0 if it never closes
/// or is too deep.
size_t bracketed(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepestJson) return 0;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return i + 1;
    }
  }
  return 0;
}

struct Pattern {
  pcre2_code* code = nullptr;
  ~Pattern() { pcre2_code_free(code); }
};

void compile_into(std::string_view pattern, Pattern& out) {
  int error = 0;
  size_t offset = 0;
  out.code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (out.code != nullptr) return;
  std::array<PCRE2_UCHAR, 200> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  throw ValueError(fmt::format("expected a PCRE2 pattern, found \"{}\": {} at offset {}", pattern,
                               reinterpret_cast<const char*>(message.data()), offset));
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  std::string digits;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    if (text.front() == '-') digits = "-";
    text.remove_prefix(1);
  }
  std::string unsigned_digits;
  if (text.empty() || scan_number(text, unsigned_digits) != text.size()) return std::nullopt;
  return to_double(digits + unsigned_digits);
}

std::optional<double> last_number(std::string_view text) {
  std::optional<double> last;
  for (size_t i = 0; i < text.size();) {
    std::string digits;
    const size_t size = scan_number(text.substr(i), digits);
    if (size == 0) {
      ++i;
      continue;
    }
    const bool has_minus = i > 0 && text[i - 1] == '-' &&
                           (i < 2 || !(is_digit(text[i - 2]) || is_letter(text[i - 2])));
    if (const auto value = to_double((has_minus ? "-" : "") + digits)) last = value;
    i += size;
  }
  return last;
}

void compile(std::string_view pattern) {
  Pattern compiled;
  compile_into(pattern, compiled);
}

Search search(std::string_view pattern, std::string_view text) {
  Pattern compiled;
  compile_into(pattern, compiled);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  pcre2_set_match_limit(limits.get(), 1'000'000);
  pcre2_set_heap_limit(limits.get(), 20'000);  // KiB
  const int result = pcre2_match(compiled.code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), 0, 0, found.get(), limits.get());
  if (result >= 0) return {true, ""};
  if (result == PCRE2_ERROR_NOMATCH) return {};
  std::array<PCRE2_UCHAR, 200> message{};
  pcre2_get_error_message(result, message.data(), message.size());
  return {false, fmt::format("pattern \"{}\": {}", pattern,
                             reinterpret_cast<const char*>(message.data()))};
}

JsonText first_json(std::string_view text) {
  // A stray bracket costs one scan to the end; more than these are not worth a quadratic search.
  int attempts = 64;
  for (size_t i = text.find_first_of("{["); i != std::string_view::npos && attempts > 0;
       i = text.find_first_of("{[", i + 1), --attempts) {
    const size_t size = bracketed(text.substr(i));
    if (size > 0 && is_json(text.substr(i, size))) return {true, text.substr(i, size)};
  }
  text = trimmed(text);
  if (is_json(text)) return {true, text};
  return {};
}

bool is_json(std::string_view text) { return parse_json(text) != nullptr; }

bool same_json(std::string_view a, std::string_view b) {
  const auto first = parse_json(a), second = parse_json(b);
  return first && second && *first == *second;
}

}  // namespace kv::answers
