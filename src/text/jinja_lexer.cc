#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kvscale/error.h"
#include "text/jinja_escape.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace kv::jinja {

void throw_syntax(int line, std::string_view what) {
  throw FormatError(fmt::format("chat template: line {}: {}", line, what));
}

void throw_unsupported(int line, std::string_view what) {
  throw UnsupportedError(fmt::format("chat template: line {}: {}", line, what));
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_start(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Line breaks of all systems as \n, and without one at the end.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : in_(source) {}

  std::vector<Token> run() {
    while (at_ < in_.size()) text();
    add(TokenKind::kEnd, "");
    return std::move(out_);
  }

 private:
  /// The text up to the next tag, and that tag.
  void text() {
    size_t tag = at_;
    while (true) {
      tag = in_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 == in_.size()) {
        add_text(in_.substr(at_));
        move_to(in_.size());
        return;
      }
      if (in_[tag + 1] == '%' || in_[tag + 1] == '{' || in_[tag + 1] == '#') break;
      ++tag;
    }
    const char kind = in_[tag + 1];
    const size_t begin = tag + 2;
    const char sign = sign_at(begin);
    add_text(stripped_before(at_, tag, sign, /*is_print=*/kind == '{'));
    move_to(begin + (sign != 0 ? 1 : 0));
    if (kind == '#') return comment();
    if (kind == '{') return tag_body(TokenKind::kPrintBegin, TokenKind::kPrintEnd, "}}");
    if (begins_raw()) return raw();
    tag_body(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  char sign_at(size_t at) const {
    return at < in_.size() && (in_[at] == '-' || in_[at] == '+') ? in_[at] : '\0';
  }

  /// What stays of the text [begin, end) before a tag.
  std::string_view stripped_before(size_t begin, size_t end, char sign, bool is_print) const {
    const std::string_view text = in_.substr(begin, end - begin);
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_print) return text;
    const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 = 0
    const bool knows_line = line_begin > 0 || begin == 0 || in_[begin - 1] == '\n';
    const bool is_blank = strip_left(text.substr(line_begin)).empty();
    return knows_line && is_blank ? text.substr(0, line_begin) : text;
  }

  void comment() {
    const size_t end = in_.find("#}", at_);
    if (end == std::string_view::npos) throw_syntax(line_, "comment without its end");
    const char sign = end > at_ ? sign_at(end - 1) : '\0';
    move_to(end + 2);
    after_tag(sign, /*trims=*/true);
  }

  /// Past the white space that a tag's end takes along.
  void after_tag(char sign, bool trims) {
    if (sign == '-') {
      move_to(in_.size() - strip_left(in_.substr(at_)).size());
    } else if (sign != '+' && trims && at_ < in_.size() && in_[at_] == '\n') {
      move_to(at_ + 1);
    }
  }

  size_t skip_space(size_t at) const { return in_.size() - strip_left(in_.substr(at)).size(); }

  /// The end of `word` and a tag's end behind it, from `at`; 0: something else is there.
  size_t end_of_word_tag(size_t at, std::string_view word, char& sign) const {
    at = skip_space(at);
    if (!in_.substr(at).starts_with(word)) return 0;
    at = skip_space(at + word.size());
    sign = sign_at(at);
    if (sign != 0) ++at;
    return in_.substr(at).starts_with("%}") ? at + 2 : 0;
  }

  bool begins_raw() const {
    char sign = 0;
    return end_of_word_tag(at_, "raw", sign) != 0 && sign != '+';
  }

  void raw() {
    char sign = 0;
    move_to(end_of_word_tag(at_, "raw", sign));
    after_tag(sign, /*trims=*/false);
    for (size_t tag = in_.find("{%", at_); tag != std::string_view::npos;
         tag = in_.find("{%", tag + 1)) {
      const char before = sign_at(tag + 2);
      const size_t end = end_of_word_tag(tag + 2 + (before != 0 ? 1 : 0), "endraw", sign);
      if (end == 0) continue;
      add_text(stripped_before(at_, tag, before, /*is_print=*/false));
      move_to(end);
      after_tag(sign, /*trims=*/true);
      return;
    }
    throw_syntax(line_, "raw without endraw");
  }

  void tag_body(TokenKind begin, TokenKind end, std::string_view close) {
    add(begin, "");
    const int begin_line = line_;
    while (true) {
      move_to(skip_space(at_));
      if (at_ == in_.size()) throw_syntax(begin_line, "tag without its end");
      if (open_.empty() && ends_tag(close)) break;
      expression_token();
    }
    char sign = sign_at(at_);
    add(end, "");
    move_to(at_ + (sign != 0 ? 1 : 0) + 2);
    after_tag(sign, /*trims=*/close == "%}");
  }

  bool ends_tag(std::string_view close) const {
    const std::string_view rest = in_.substr(at_);
    if (rest.starts_with(close)) return true;
    const bool has_sign = rest[0] == '-' || (rest[0] == '+' && close == "%}");
    return has_sign && rest.substr(1).starts_with(close);
  }

  void expression_token() {
    const char c = in_[at_];
    if (is_name_start(c)) return name();
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view text : kOperators) {
      if (in_.substr(at_).starts_with(text)) return operator_token(text);
    }
    const CodePoint other = first_code_point(in_.substr(at_));
    throw_syntax(line_, fmt::format("unexpected character {}", in_.substr(at_, other.size)));
  }

  void operator_token(std::string_view text) {
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(text) != std::string_view::npos) open_ += text;
    const size_t close = kClose.find(text);
    if (close != std::string_view::npos) {
      if (open_.empty() || open_.back() != kOpen[close]) {
        throw_syntax(line_, fmt::format("unexpected {}", text));
      }
      open_.pop_back();
    }
    add(TokenKind::kOperator, std::string(text));
    move_to(at_ + text.size());
  }

  void name() {
    size_t end = at_;
    while (end < in_.size() && (is_name_start(in_[end]) || is_digit(in_[end]))) ++end;
    add(TokenKind::kName, std::string(in_.substr(at_, end - at_)));
    move_to(end);
  }

  size_t digits(size_t at) const {
    while (at < in_.size() && (is_digit(in_[at]) || (in_[at] == '_' && is_digit(next_to(at)))))
      ++at;
    return at;
  }
  char next_to(size_t at) const { return at + 1 < in_.size() ? in_[at + 1] : '\0'; }

  void number() {
    size_t end = digits(at_);
    bool is_float = false;
    const bool follows_dot = at_ > 0 && in_[at_ - 1] == '.';  // as in "list.0.1"
    if (!follows_dot) {
      if (end < in_.size() && in_[end] == '.' && is_digit(next_to(end))) {
        is_float = true;
        end = digits(end + 1);
      }
      size_t exponent = end + 1;
      if (end < in_.size() && (in_[end] == 'e' || in_[end] == 'E')) {
        if (sign_at(exponent) != 0) ++exponent;
        if (exponent < in_.size() && is_digit(in_[exponent])) {
          is_float = true;
          end = digits(exponent);
        }
      }
    }
    if (end < in_.size() && is_name_start(in_[end])) {
      throw_syntax(line_, fmt::format("number {} runs into a name", in_.substr(at_, end - at_)));
    }
    std::string text(in_.substr(at_, end - at_));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    if (text.size() > 40) throw_syntax(line_, "number of more than 40 digits");
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    move_to(end);
  }

  void string(char quote) {
    std::string text;
    size_t at = at_ + 1;
    while (at < in_.size() && in_[at] != quote) {
      if (in_[at] == '\\' && at + 1 < in_.size()) {
        at = append_escape(in_, at + 1, line_, text);
      } else {
        text += in_[at++];
      }
    }
    if (at >= in_.size()) throw_syntax(line_, "string without its end");
    add(TokenKind::kString, std::move(text));
    move_to(at + 1);
  }

  void add(TokenKind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }

  void add_text(std::string_view text) {
    if (!text.empty()) add(TokenKind::kText, std::string(text));
  }

  void move_to(size_t at) {
    line_ += static_cast<int>(std::count(in_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         in_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    at_ = at;
  }

  std::string_view in_;
  size_t at_ = 0;
  int line_ = 1;
  std::string open_;  // brackets that are not closed yet
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  // Real templates have up to 20 KB.
  constexpr size_t kLongest = 1 << 20;
  if (source.size() > kLongest) throw_syntax(1, "longer than 1 MiB");
  if (well_formed_prefix(source) != source.size()) throw_syntax(1, "not UTF-8");
  return Lexer(normalized(source)).run();
}

}  // namespace kv::jinja
