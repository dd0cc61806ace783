#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

/// What the scorers find in a generated text.
namespace kv::answers {

/// Without ASCII blanks at both ends.
std::string_view trimmed(std::string_view text);

/// The whole text, blanks at its ends aside, as a number: sign, digits with an optional point,
/// optional exponent; commas between groups of three digits are passed over ("-1,234.5e3").
std::optional<double> parse_number(std::string_view text);

/// The last such number in a text. A sign counts unless a letter or digit stands before it
/// ("12-7" ends in 7).
std::optional<double> last_number(std::string_view text);

/// The outcome of a search; `trouble` says why there is none ("match limit exceeded").
struct Search {
  bool is_match = false;
  std::string trouble;
};

/// Searches a PCRE2 pattern (UTF) in a text, whose invalid UTF-8 matches nothing. Limits: a million
/// steps of matching, 20 MB of heap. Throws ValueError as compile does.
Search search(std::string_view pattern, std::string_view text);

/// Throws ValueError with PCRE2's message and the offset unless the pattern compiles.
void compile(std::string_view pattern);

/// Deeper JSON is not looked at: comparing it would need as deep a stack.
inline constexpr int kDeepestJson = 100;

struct JsonText {
  bool is_found = false;
  std::string_view text;
};

/// The first JSON object or array in a text (after prose, in a code fence); else the whole text if
/// it is a JSON value.
JsonText first_json(std::string_view text);

bool is_json(std::string_view text);

/// Whether two JSON texts have the same value: order of keys and 1 against 1.0 do not matter. False
/// if one of them is no JSON.
bool same_json(std::string_view a, std::string_view b);

}  // namespace kv::answers
