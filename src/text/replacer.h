#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/regex.h"

namespace kv {

/// Every place of a literal or of a pattern's match, put another text for. The Replace of
/// tokenizer.json; pieces without a match are left as they are.
struct Replacer {
  std::string literal;         // not empty, unless there is a pattern
  std::optional<Regex> regex;  // wins
  std::string with;

  /// `matcher` is this regex's, or nullptr where there is none.
  std::string apply(std::string_view text, RegexMatcher* matcher) const;
};

}  // namespace kv
