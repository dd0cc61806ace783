// Expressions.
#include "text/jinja_filters.h"
#include "text/jinja_operators.h"
#include "text/jinja_render.h"

namespace kv::jinja {

Value Renderer::evaluate(const Expr& expr) {
  const Runtime::Level level(runtime_);
  runtime_.take_steps();
  runtime_.line = expr.line;
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
      return look_up(expr.name);
    case ExprKind::kAttribute:
      return attribute(runtime_, evaluate(*expr.children[0]), expr.name);
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.children[0]);
      return item(runtime_, object, evaluate(*expr.children[1]));
    }
    case ExprKind::kSlice: {
      const std::vector<Value> parts = evaluate_all(expr.children, 0);
      return slice(runtime_, parts[0], parts[1], parts[2], parts[3]);
    }
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter: {
      const Value value = evaluate(*expr.children[0]);
      Arguments arguments = evaluate_arguments(expr, expr.name);
      return apply_filter(runtime_, expr.name, value, arguments);
    }
    case ExprKind::kTest: {
      const Value value = evaluate(*expr.children[0]);
      Arguments arguments = evaluate_arguments(expr, expr.name);
      return apply_test(runtime_, expr.name, value, arguments);
    }
    case ExprKind::kUnary:
      return unary_operator(runtime_, expr.name, evaluate(*expr.children[0]));
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kChoice:
      if (is_true(evaluate(*expr.children[1]))) return evaluate(*expr.children[0]);
      if (expr.children[2]) return evaluate(*expr.children[2]);
      return Undefined{"the value of an if without else"};
    case ExprKind::kList:
      return make_list(runtime_, evaluate_all(expr.children, 0));
    case ExprKind::kTuple:
      return make_items(runtime_, evaluate_all(expr.children, 0), Items::Kind::kTuple);
    case ExprKind::kDict:
      return evaluate_dict(expr);
  }
  return Value();
}

Value Renderer::evaluate_binary(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  if (expr.name == "and") return is_true(left) ? evaluate(*expr.children[1]) : left;
  if (expr.name == "or") return is_true(left) ? left : evaluate(*expr.children[1]);
  const Value right = evaluate(*expr.children[1]);
  runtime_.line = expr.line;
  return binary_operator(runtime_, expr.name, left, right);
}

Value Renderer::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    if (!compare(runtime_, expr.compares[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::evaluate_dict(const Expr& expr) {
  Members members;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    Value key = evaluate(*expr.children[i]);
    Value value = evaluate(*expr.children[i + 1]);
    runtime_.take_steps(std::ssize(members) / 8);
    const auto known = std::find_if(members.begin(), members.end(), [&](const auto& member) {
      return is_equal(member.first, key);
    });
    if (known != members.end()) {
      known->second = std::move(value);
    } else {
      members.emplace_back(std::move(key), std::move(value));
    }
  }
  return make_dict(runtime_, std::move(members));
}

std::vector<Value> Renderer::evaluate_all(const std::vector<ExprPtr>& exprs, size_t from) {
  std::vector<Value> out;
  out.reserve(exprs.size());
  for (size_t i = from; i < exprs.size(); ++i) {
    out.push_back(exprs[i] ? evaluate(*exprs[i]) : Value());
  }
  return out;
}

Arguments Renderer::evaluate_arguments(const Expr& call, std::string function) {
  Arguments out;
  out.function = std::move(function);
  out.positional = evaluate_all(call.children, 1);
  for (const auto& [name, expr] : call.named) out.named.emplace_back(name, evaluate(*expr));
  runtime_.line = call.line;
  return out;
}

Value Renderer::filtered(const Expr& chain, Value text) {
  if (chain.children[0]) text = filtered(*chain.children[0], std::move(text));
  Arguments arguments = evaluate_arguments(chain, chain.name);
  return apply_filter(runtime_, chain.name, text, arguments);
}

Value Renderer::look_up(const std::string& name) {
  if (const Value* found = scope_->find(name)) return *found;
  if (name == "namespace") {
    auto function = std::make_shared<Function>();
    function->name = name;
    function->call = [this](Runtime&, Arguments& arguments) { return make_namespace(arguments); };
    return std::shared_ptr<const Function>(std::move(function));
  }
  return global(runtime_, name);
}

Value Renderer::evaluate_call(const Expr& expr) {
  const Value callee = evaluate(*expr.children[0]);
  expect_defined(runtime_, callee);
  if (!callee.function()) runtime_.fail("a {} cannot be called", type_name(callee));
  Arguments arguments = evaluate_arguments(expr, callee.function()->name);
  return call(callee, arguments);
}

Value Renderer::call(const Value& callee, Arguments& arguments) {
  expect_defined(runtime_, callee);
  if (!callee.function()) runtime_.fail("a {} cannot be called", type_name(callee));
  arguments.function = callee.function()->name;
  Value out = callee.function()->call(runtime_, arguments);
  arguments.finish(runtime_);
  return out;
}

Value Renderer::make_namespace(Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  if (const Value* from = arguments.take("mapping")) {
    if (!from->dict()) runtime_.fail("namespace: expected dict, found {}", type_name(*from));
    for (const auto& [key, value] : from->dict()->members) {
      space->members.emplace_back(to_text(runtime_, key), value);
    }
  }
  for (auto& [name, value] : arguments.named) {
    if (name[0] == '_') runtime_.fail("namespace: {}: not allowed", name);
    space->members.emplace_back(name, value);
  }
  arguments.named.clear();
  namespaces_.push_back(space);
  return space;
}

}  // namespace kv::jinja
