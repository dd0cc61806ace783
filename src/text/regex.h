#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kv {

/// A stretch of a text, and whether a pattern matched it.
struct Segment {
  size_t begin, end;
  bool is_match;
};

/// A compiled pattern (PCRE2, JIT where the machine allows it). Immutable; shared by threads, each
/// of which matches through its own RegexMatcher.
class Regex {
 public:
  /// `pattern` is PCRE2's (regex_dialect.h makes it from Oniguruma's). Throws FormatError naming
  /// `where` when it does not compile.
  Regex(const std::string& pattern, const std::string& where);

  /// A pattern that matches `literal` and nothing else.
  static std::string quote(std::string_view literal);

 private:
  friend class RegexMatcher;
  std::shared_ptr<void> code_;
  bool is_jitted_ = false;
  std::string where_;
};

/// Working memory to match one Regex; not shared by threads.
class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);

  /// Cuts well-formed `text` into matches and the gaps between them, in order and without a hole.
  /// Empty matches are reported, except directly behind another match. Throws ValueError when the
  /// pattern needs more steps or stack than PCRE2's limits allow.
  void for_each_segment(std::string_view text, const std::function<void(Segment)>& sink);

 private:
  /// The first match that begins at or after `from`; false: none.
  bool find(std::string_view text, size_t from, Segment& match);

  Regex regex_;
  std::shared_ptr<void> match_data_, match_context_, jit_stack_;
};

}  // namespace kv
