#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace kv::jinja {

/// Reads expressions from tokens, with Jinja's precedences. Filters and tests that kvscale does not
/// have are refused here by name, before anything is rendered. Throws FormatError, UnsupportedError
/// with the line.
class ExpressionParser {
 public:
  /// `tokens` end with kEnd.
  explicit ExpressionParser(std::span<const Token> tokens) : tokens_(tokens) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_operator(std::string_view text) const;
  bool is_name(std::string_view text) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect_kind(TokenKind kind, std::string_view what);
  std::string expect_name();

  ExprPtr expression();
  /// Several with commas are a tuple. `with_choice`: "a if b else c" is taken too.
  ExprPtr tuple_or_expression(bool with_choice);
  /// A chain of filters over nothing (children[0] is null at its root); `starts` without "|".
  ExprPtr filter_chain(bool starts);
  /// (a, b=1): the parameters of a macro.
  std::vector<Parameter> parameters();

  /// While it lives, one level deeper into brackets or blocks.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr make(ExprKind kind, int line, std::string name, std::vector<ExprPtr> children) const;
  template <class... Children>
  ExprPtr make_of(ExprKind kind, int line, std::string name, Children... children) const {
    std::vector<ExprPtr> list;
    (list.push_back(std::move(children)), ...);
    return make(kind, line, std::move(name), std::move(list));
  }
  /// Sets the depth and holds it to its limit.
  void measure(Expr& expr) const;
  bool ends_tuple() const;
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr constant(Value value);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr filters_and_tests(ExprPtr expr);
  ExprPtr filter(ExprPtr expr);
  ExprPtr test(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr call(ExprPtr callee);
  void arguments(Expr& call);
  [[noreturn]] void fail_unexpected() const;

  std::span<const Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace kv::jinja
