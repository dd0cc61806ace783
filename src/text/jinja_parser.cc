#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "text/jinja_expressions.h"
#include "text/jinja_lexer.h"

namespace kv::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::span<const Token> tokens) : in_(tokens) {}

  Body run() { return body({}); }

 private:
  using Ends = std::initializer_list<std::string_view>;

  /// Statements up to a tag that begins with one of `ends`, which is left unread behind its "{%".
  Body body(Ends ends) {
    const ExpressionParser::Level level(in_);
    Body out;
    while (true) {
      const Token& token = in_.next();
      switch (token.kind) {
        case TokenKind::kText:
          out.push_back(of(StmtKind::kText, token.line));
          out.back().text = token.text;
          break;
        case TokenKind::kPrintBegin:
          out.push_back(of(StmtKind::kPrint, token.line));
          out.back().exprs.push_back(in_.tuple_or_expression(/*with_choice=*/true));
          in_.expect_kind(TokenKind::kPrintEnd, "}}");
          break;
        case TokenKind::kBlockBegin:
          if (std::find(ends.begin(), ends.end(), in_.current().text) != ends.end()) return out;
          out.push_back(statement());
          in_.expect_kind(TokenKind::kBlockEnd, "%}");
          break;
        default:  // the end
          if (ends.size() == 0) return out;
          throw_syntax(token.line, fmt::format("expected {} before the end", *(ends.end() - 1)));
      }
    }
  }

  static Stmt of(StmtKind kind, int line) {
    Stmt out;
    out.kind = kind;
    out.line = line;
    return out;
  }

  Stmt statement() {
    const int line = in_.current().line;
    const std::string name = in_.expect_name();
    if (name == "for") return for_loop(line);
    if (name == "if") return condition(line);
    if (name == "set") return assignment(line);
    if (name == "macro") return macro(line);
    if (name == "call") return call_block(line);
    if (name == "filter") return filter_block(line);
    if (name == "with") return with_block(line);
    if (name == "generation") {  // marks what the assistant says; renders as it stands
      Stmt out = of(StmtKind::kBlock, line);
      add_body(out, "endgeneration");
      return out;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) throw_syntax(line, fmt::format("{} outside of a loop", name));
      return of(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, line);
    }
    for (const std::string_view known :
         {"include", "import", "from", "extends", "block", "do", "autoescape", "trans", "debug"}) {
      if (name == known) throw_unsupported(line, fmt::format("statement {} is not served", name));
    }
    throw_syntax(line, fmt::format("unexpected statement {}", name));
  }

  /// The body between the tag at hand and `end`.
  void add_body(Stmt& stmt, std::string_view end) {
    in_.expect_kind(TokenKind::kBlockEnd, "%}");
    stmt.bodies.push_back(body({end}));
    in_.next();
  }

  Stmt for_loop(int line) {
    Stmt out = of(StmtKind::kFor, line);
    read_targets(out, /*may_be_member=*/false);
    if (!in_.skip_name("in")) throw_syntax(line, "expected in after the variables of for");
    out.exprs.push_back(in_.tuple_or_expression(/*with_choice=*/false));
    out.exprs.push_back(in_.skip_name("if") ? in_.expression() : nullptr);
    if (in_.is_name("recursive")) throw_unsupported(line, "recursive loops are not served");
    in_.expect_kind(TokenKind::kBlockEnd, "%}");
    ++loops_;
    out.bodies.push_back(body({"else", "endfor"}));
    --loops_;
    if (in_.next().text == "else") add_body(out, "endfor");
    return out;
  }

  Stmt condition(int line) {
    Stmt out = of(StmtKind::kIf, line);
    while (true) {
      out.exprs.push_back(in_.tuple_or_expression(/*with_choice=*/false));
      in_.expect_kind(TokenKind::kBlockEnd, "%}");
      out.bodies.push_back(body({"elif", "else", "endif"}));
      const std::string_view end = in_.next().text;
      if (end == "endif") return out;
      if (end == "else") break;
    }
    add_body(out, "endif");
    return out;
  }

  Stmt assignment(int line) {
    Stmt out = of(StmtKind::kSet, line);
    read_targets(out, /*may_be_member=*/true);
    if (in_.skip_operator("=")) {
      out.exprs.push_back(in_.tuple_or_expression(/*with_choice=*/true));
      return out;
    }
    out.kind = StmtKind::kSetBlock;
    out.exprs.push_back(in_.filter_chain(/*starts=*/false));
    add_body(out, "endset");
    return out;
  }

  Stmt macro(int line) {
    Stmt out = of(StmtKind::kMacro, line);
    out.text = in_.expect_name();
    out.parameters = in_.parameters();
    add_body_of_macro(out, "endmacro");
    return out;
  }

  /// Loops outside of a macro are none inside of it.
  void add_body_of_macro(Stmt& stmt, std::string_view end) {
    const int outer = std::exchange(loops_, 0);
    add_body(stmt, end);
    loops_ = outer;
  }

  Stmt call_block(int line) {
    Stmt out = of(StmtKind::kCallBlock, line);
    if (in_.is_operator("(")) out.parameters = in_.parameters();
    out.exprs.push_back(in_.expression());
    if (out.exprs[0]->kind != ExprKind::kCall) throw_syntax(line, "expected a call after call");
    add_body_of_macro(out, "endcall");
    return out;
  }

  Stmt filter_block(int line) {
    Stmt out = of(StmtKind::kFilterBlock, line);
    out.exprs.push_back(in_.filter_chain(/*starts=*/true));
    add_body(out, "endfilter");
    return out;
  }

  Stmt with_block(int line) {
    Stmt out = of(StmtKind::kWith, line);
    while (in_.current().kind == TokenKind::kName) {
      Parameter parameter;
      parameter.name = in_.expect_name();
      in_.expect_operator("=");
      parameter.value = in_.expression();
      out.parameters.push_back(std::move(parameter));
      if (!in_.skip_operator(",")) break;
    }
    add_body(out, "endwith");
    return out;
  }

  /// a | a, b | (a, b) | namespace.member
  void read_targets(Stmt& stmt, bool may_be_member) {
    const bool has_brackets = in_.skip_operator("(");
    do {
      if (!stmt.targets.empty() && in_.current().kind != TokenKind::kName) break;  // "a, ="
      Target target;
      const int line = in_.current().line;
      target.name = in_.expect_name();
      for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
        if (target.name == word) throw_syntax(line, fmt::format("cannot assign to {}", word));
      }
      if (may_be_member && in_.skip_operator(".")) target.member = in_.expect_name();
      stmt.targets.push_back(std::move(target));
      stmt.unpacks |= in_.is_operator(",");
    } while (in_.skip_operator(","));
    if (has_brackets) in_.expect_operator(")");
  }

  ExpressionParser in_;
  int loops_ = 0;  // around the statement at hand
};

}  // namespace

Body parse_template(std::string_view source) {
  const std::vector<Token> tokens = tokenize(source);
  return Parser(tokens).run();
}

}  // namespace kv::jinja
