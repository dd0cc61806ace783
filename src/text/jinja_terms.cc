// What expressions are made of: literals, indexes, calls, filters and tests.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja_expressions.h"
#include "text/jinja_filters.h"

namespace kv::jinja {

ExprPtr ExpressionParser::constant(Value value) {
  ExprPtr out = make(ExprKind::kConstant, current().line, "", {});
  out->value = std::move(value);
  return out;
}

ExprPtr ExpressionParser::primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName: {
      next();
      const std::string& text = token.text;
      if (text == "true" || text == "True") return constant(true);
      if (text == "false" || text == "False") return constant(false);
      if (text == "none" || text == "None") return constant(Value());
      return make(ExprKind::kName, token.line, text, {});
    }
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += next().text;
      return constant(text);
    }
    case TokenKind::kInteger: {
      int64_t value = 0;
      const char* end = token.text.data() + token.text.size();
      if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
        throw_unsupported(token.line, fmt::format("{}: whole numbers have 63 bits", token.text));
      }
      next();
      return constant(value);
    }
    case TokenKind::kFloat: {
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      next();
      return constant(value);
    }
    default:
      break;
  }
  if (is_operator("[")) return list();
  if (is_operator("{")) return dict();
  if (!skip_operator("(")) fail_unexpected();
  ExprPtr out = tuple_or_expression(/*with_choice=*/true);
  expect_operator(")");
  return out;
}

ExprPtr ExpressionParser::list() {
  const int line = next().line;
  std::vector<ExprPtr> items;
  while (!is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    items.push_back(expression());
  }
  next();
  return make(ExprKind::kList, line, "", std::move(items));
}

ExprPtr ExpressionParser::dict() {
  const int line = next().line;
  std::vector<ExprPtr> items;
  while (!is_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("}")) break;
    items.push_back(expression());
    expect_operator(":");
    items.push_back(expression());
  }
  next();
  return make(ExprKind::kDict, line, "", std::move(items));
}

ExprPtr ExpressionParser::postfix(ExprPtr expr) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      expr = subscript(std::move(expr));
    } else if (is_operator("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr expr) {
  while (true) {
    if (skip_operator("|")) {
      expr = filter(std::move(expr));
    } else if (skip_name("is")) {
      expr = test(std::move(expr));
    } else if (is_operator("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::filter(ExprPtr expr) {
  const int line = current().line;
  const std::string name = expect_name();
  if (!is_filter(name)) throw_unsupported(line, fmt::format("filter {} is not served", name));
  ExprPtr out = make_of(ExprKind::kFilter, line, name, std::move(expr));
  if (is_operator("(")) arguments(*out);
  return out;
}

ExprPtr ExpressionParser::filter_chain(bool starts) {
  ExprPtr out;
  if (starts) out = filter(nullptr);
  while (skip_operator("|")) out = filter(std::move(out));
  return out;
}

ExprPtr ExpressionParser::test(ExprPtr expr) {
  const int line = current().line;
  const bool is_negated = skip_name("not");
  const std::string name = expect_name();
  if (!is_test(name)) throw_unsupported(line, fmt::format("test {} is not served", name));
  ExprPtr out = make_of(ExprKind::kTest, line, name, std::move(expr));
  const bool has_operand =
      (current().kind == TokenKind::kName && !is_name("else") && !is_name("or") &&
       !is_name("and")) ||
      current().kind == TokenKind::kString || current().kind == TokenKind::kInteger ||
      current().kind == TokenKind::kFloat || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    arguments(*out);
  } else if (has_operand) {
    if (is_name("is")) throw_syntax(line, "tests cannot be chained with is");
    out->children.push_back(postfix(primary()));
    measure(*out);
  }
  return is_negated ? make_of(ExprKind::kUnary, line, "not", std::move(out)) : std::move(out);
}

ExprPtr ExpressionParser::subscript(ExprPtr expr) {
  const int line = current().line;
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kInteger) {
      return make_of(ExprKind::kItem, line, "", std::move(expr), primary());
    }
    return make_of(ExprKind::kAttribute, line, expect_name(), std::move(expr));
  }
  expect_operator("[");
  ExprPtr parts[3];
  bool is_slice = false;
  for (ExprPtr& part : parts) {
    if (!is_operator(":") && !is_operator("]")) part = expression();
    if (!skip_operator(":")) break;
    is_slice = true;
  }
  if (is_operator(",")) throw_unsupported(line, "an index of several values is not served");
  expect_operator("]");
  if (!is_slice && !parts[0]) throw_syntax(line, "expected an index, found ]");
  if (!is_slice) return make_of(ExprKind::kItem, line, "", std::move(expr), std::move(parts[0]));
  return make_of(ExprKind::kSlice, line, "", std::move(expr), std::move(parts[0]),
                 std::move(parts[1]), std::move(parts[2]));
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  ExprPtr out = make_of(ExprKind::kCall, current().line, "", std::move(callee));
  arguments(*out);
  return out;
}

void ExpressionParser::arguments(Expr& call) {
  expect_operator("(");
  for (bool is_first = true; !is_operator(")"); is_first = false) {
    if (!is_first) expect_operator(",");
    if (is_operator(")")) break;
    if (is_operator("*") || is_operator("**")) {
      throw_unsupported(call.line, "arguments given as *list or **dict are not served");
    }
    const Token& after = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (current().kind == TokenKind::kName && after.kind == TokenKind::kOperator &&
        after.text == "=") {
      std::string name = next().text;
      next();
      call.named.emplace_back(std::move(name), expression());
    } else {
      if (!call.named.empty()) throw_syntax(call.line, "argument without a name after named ones");
      call.children.push_back(expression());
    }
  }
  next();
  measure(call);
}

std::vector<Parameter> ExpressionParser::parameters() {
  std::vector<Parameter> out;
  expect_operator("(");
  while (!is_operator(")")) {
    if (!out.empty()) expect_operator(",");
    Parameter parameter;
    parameter.name = expect_name();
    if (skip_operator("=")) {
      parameter.value = expression();
    } else if (!out.empty() && out.back().value) {
      throw_syntax(current().line, "parameter without a default after one with a default");
    }
    out.push_back(std::move(parameter));
  }
  next();
  return out;
}

}  // namespace kv::jinja
