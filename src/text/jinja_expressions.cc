#include "text/jinja_expressions.h"

#include <fmt/format.h>

#include <algorithm>

namespace kv::jinja {
namespace {

// Real templates nest up to ten deep; sums of strings are chains of up to thirty.
constexpr int kDeepest = 150;

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kBlockEnd:
      return "%}";
    case TokenKind::kPrintEnd:
      return "}}";
    default:
      return token.text;
  }
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser.depth_ <= kDeepest) return;
  --parser.depth_;
  throw_syntax(parser.current().line, fmt::format("nested deeper than {}", kDeepest));
}

bool ExpressionParser::is_operator(std::string_view text) const {
  return current().kind == TokenKind::kOperator && current().text == text;
}

bool ExpressionParser::is_name(std::string_view text) const {
  return current().kind == TokenKind::kName && current().text == text;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  next();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (skip_operator(text)) return;
  throw_syntax(current().line, fmt::format("expected {}, found {}", text, describe(current())));
}

void ExpressionParser::expect_kind(TokenKind kind, std::string_view what) {
  if (current().kind != kind) {
    throw_syntax(current().line, fmt::format("expected {}, found {}", what, describe(current())));
  }
  next();
}

std::string ExpressionParser::expect_name() {
  const std::string text = current().text;
  expect_kind(TokenKind::kName, "a name");
  return text;
}

void ExpressionParser::fail_unexpected() const {
  throw_syntax(current().line, fmt::format("unexpected {}", describe(current())));
}

void ExpressionParser::measure(Expr& expr) const {
  const auto take = [&](const ExprPtr& child) {
    if (child) expr.depth = std::max(expr.depth, child->depth + 1);
  };
  for (const ExprPtr& child : expr.children) take(child);
  for (const auto& [name, child] : expr.named) take(child);
  if (expr.depth > kDeepest) {
    throw_syntax(expr.line, fmt::format("expression nested deeper than {}", kDeepest));
  }
}

ExprPtr ExpressionParser::make(ExprKind kind, int line, std::string name,
                               std::vector<ExprPtr> children) const {
  auto out = std::make_unique<Expr>();
  out->kind = kind;
  out->line = line;
  out->name = std::move(name);
  out->children = std::move(children);
  measure(*out);
  return out;
}

ExprPtr ExpressionParser::expression() {
  const Level level(*this);
  ExprPtr out = disjunction();
  while (is_name("if")) {
    const int line = next().line;
    ExprPtr condition = disjunction();
    ExprPtr otherwise = skip_name("else") ? expression() : nullptr;
    out = make_of(ExprKind::kChoice, line, "", std::move(out), std::move(condition),
                  std::move(otherwise));
  }
  return out;
}

bool ExpressionParser::ends_tuple() const {
  return current().kind == TokenKind::kPrintEnd || current().kind == TokenKind::kBlockEnd ||
         is_operator(")");
}

ExprPtr ExpressionParser::tuple_or_expression(bool with_choice) {
  const Level level(*this);
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!ends_tuple()) {
    items.push_back(with_choice ? expression() : disjunction());
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (items.empty() && !is_operator(")")) fail_unexpected();
  if (items.size() == 1 && !is_tuple) return std::move(items[0]);
  return make(ExprKind::kTuple, line, "", std::move(items));
}

ExprPtr ExpressionParser::disjunction() {
  ExprPtr out = conjunction();
  while (is_name("or")) {
    const int line = next().line;
    out = make_of(ExprKind::kBinary, line, "or", std::move(out), conjunction());
  }
  return out;
}

ExprPtr ExpressionParser::conjunction() {
  ExprPtr out = negation();
  while (is_name("and")) {
    const int line = next().line;
    out = make_of(ExprKind::kBinary, line, "and", std::move(out), negation());
  }
  return out;
}

ExprPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  const int line = next().line;
  return make_of(ExprKind::kUnary, line, "not", negation());
}

ExprPtr ExpressionParser::comparison() {
  const int line = current().line;
  std::vector<ExprPtr> terms;
  std::vector<std::string> compares;
  terms.push_back(sum());
  while (true) {
    bool is_compare = false;
    for (const std::string_view text : {"==", "!=", "<=", ">=", "<", ">"}) {
      is_compare |= is_operator(text);
    }
    if (is_compare) {
      compares.push_back(next().text);
    } else if (skip_name("in")) {
      compares.emplace_back("in");
    } else if (is_name("not") && tokens_[at_ + 1].kind == TokenKind::kName &&
               tokens_[at_ + 1].text == "in") {
      at_ += 2;
      compares.emplace_back("not in");
    } else {
      break;
    }
    terms.push_back(sum());
  }
  if (compares.empty()) return std::move(terms[0]);
  ExprPtr out = make(ExprKind::kCompare, line, "", std::move(terms));
  out->compares = std::move(compares);
  return out;
}

ExprPtr ExpressionParser::sum() {
  ExprPtr out = concatenation();
  while (is_operator("+") || is_operator("-")) {
    const Token& op = next();
    out = make_of(ExprKind::kBinary, op.line, op.text, std::move(out), concatenation());
  }
  return out;
}

ExprPtr ExpressionParser::concatenation() {
  ExprPtr out = product();
  while (is_operator("~")) {
    const int line = next().line;
    out = make_of(ExprKind::kBinary, line, "~", std::move(out), product());
  }
  return out;
}

ExprPtr ExpressionParser::product() {
  ExprPtr out = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token& op = next();
    out = make_of(ExprKind::kBinary, op.line, op.text, std::move(out), power());
  }
  return out;
}

ExprPtr ExpressionParser::power() {
  ExprPtr out = unary(/*with_filters=*/true);
  while (is_operator("**")) {
    const int line = next().line;
    out = make_of(ExprKind::kBinary, line, "**", std::move(out), unary(true));
  }
  return out;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  ExprPtr out;
  if (is_operator("-") || is_operator("+")) {
    const Level level(*this);
    const Token& op = next();
    out = make_of(ExprKind::kUnary, op.line, op.text, unary(/*with_filters=*/false));
  } else {
    out = primary();
  }
  out = postfix(std::move(out));
  return with_filters ? filters_and_tests(std::move(out)) : std::move(out);
}

}  // namespace kv::jinja
