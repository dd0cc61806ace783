#include "text/regex_dialect.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvscale/error.h"
#include "text/unicode_additions.h"

namespace kv {
namespace {

// White_Space; PCRE2's own \s also takes U+180E.
constexpr std::string_view kSpaceItems = "\\t-\\r\\x{85}\\p{Z}";

class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) element();
    return std::move(out_);
  }

 private:
  void element() {
    switch (in_[at_]) {
      case '\\':
        return escape(/*in_class=*/false);
      case '[':
        return character_class();
      case '(':
        return group();
      case '}':
        // Ruby reads x{1,3}+ as (?:x{1,3})+ and x{3}? as (?:x{3})?, PCRE2 as possessive and lazy.
        if (next_is("}+") || next_is("}?")) refuse(in_.substr(at_, 2));
        break;
      case '{':
        if (next_is("{,")) refuse("{,");  // Ruby: {0,n}; PCRE2: literal
        break;
      default:
        break;
    }
    out_ += in_[at_++];
  }

  void group() {
    if (next_is("(*")) refuse("(*");  // PCRE2's verbs
    if (!next_is("(?")) return copy(1);
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?-i:"}) {
      if (next_is(head)) return copy(head.size());
    }
    // In the middle of a pattern, Ruby's (?i) also encloses the alternatives that follow.
    if (next_is("(?i:") || (at_ == 0 && next_is("(?i)"))) return ignore_case();
    refuse(in_.substr(at_, 4));  // (?m) and (?x) differ, names and conditions are not needed
  }

  void ignore_case() {
    // Oniguruma folds ß to ss and the ligatures of f and s to their letters, PCRE2 does not.
    for (size_t i = 0; i + 1 < in_.size(); ++i) {
      const std::string pair = {lower(in_[i]), lower(in_[i + 1])};
      if (pair == "ss" || pair == "st" || pair == "ff" || pair == "fi" || pair == "fl") {
        refuse("(?i with " + pair);
      }
    }
    copy(4);  // "(?i:" and "(?i)" are equally long
  }

  void character_class() {
    out_ += in_[at_++];
    if (next_is("^")) copy(1);
    if (next_is("]")) refuse("[]");  // both engines disagree whether this closes the class
    while (true) {
      if (at_ == in_.size()) {
        throw FormatError(fmt::format("{}: class without its ']' in pattern {}", where_, in_));
      }
      if (next_is("&&")) refuse("&&");
      if (in_[at_] == '[') refuse("[...[");
      if (in_[at_] == '\\') {
        escape(/*in_class=*/true);
        continue;
      }
      out_ += in_[at_];
      if (in_[at_++] == ']') return;
    }
  }

  void escape(bool in_class) {
    if (at_ + 1 == in_.size()) refuse("\\");
    const char letter = in_[at_ + 1];
    const auto put = [&](std::string_view items, bool negated) {
      at_ += 2;
      if (negated && in_class) refuse_back(2);
      out_ += in_class ? std::string(items) : fmt::format("[{}{}]", negated ? "^" : "", items);
    };
    switch (letter) {
      case 'p':
      case 'P':
        return property(letter == 'P', in_class);
      case 's':
      case 'S':
        return put(kSpaceItems, letter == 'S');
      case 'd':
      case 'D':
        return put(*class_items_of("Nd"), letter == 'D');
      case 'u':
        return code_unit();
      case 'v':
        out_ += "\\x0b";  // in PCRE2 \v is a class
        at_ += 2;
        return;
      case 'x':
        return hexadecimal();
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return copy(2);
      default:
        break;
    }
    const bool is_word = letter == '_' || (letter >= '0' && letter <= '9') ||
                         (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (is_word || static_cast<unsigned char>(letter) >= 0x80) refuse(in_.substr(at_, 2));
    copy(2);
  }

  void property(bool negated, bool in_class) {
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) {
      refuse(in_.substr(at_, 3));
    }
    const std::string_view whole = in_.substr(at_, close + 1 - at_);
    const auto items = class_items_of(in_.substr(at_ + 3, close - at_ - 3));
    if (!items || (negated && in_class)) refuse(whole);
    at_ = close + 1;
    out_ += in_class ? *items : fmt::format("[{}{}]", negated ? "^" : "", *items);
  }

  /// \xHH or \x{H...}
  void hexadecimal() {
    copy(2);
    if (!next_is("{")) return;
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) refuse("\\x{");
    copy(close + 1 - at_);
  }

  /// \uHHHH, which PCRE2 spells \x{HHHH}.
  void code_unit() {
    const std::string_view digits = in_.substr(std::min(at_ + 2, in_.size()), 4);
    if (digits.size() != 4 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("\\u");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  static char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

  bool next_is(std::string_view what) const { return in_.substr(at_).starts_with(what); }

  void copy(size_t n) {
    out_ += in_.substr(at_, n);
    at_ = std::min(at_ + n, in_.size());
  }

  [[noreturn]] void refuse_back(size_t n) {
    at_ -= n;
    refuse(in_.substr(at_, n));
  }

  [[noreturn]] void refuse(std::string_view construct) const {
    throw UnsupportedError(fmt::format(
        "{}: pattern {}: {} at {} has no equal in PCRE2, or another meaning there; supported: "
        "literals, classes, groups, alternation, quantifiers, lookaround, \\s \\S \\d \\p{{..}}",
        where_, in_, construct, at_));
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Rewriter(pattern, where).run();
}

}  // namespace kv
