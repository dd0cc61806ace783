#include "text/jinja_render.h"

#include "text/jinja_filters.h"
#include "text/jinja_operators.h"

namespace kv::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : variables) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Renderer::Renderer(Runtime& runtime, Variables variables)
    : runtime_(runtime), scope_(std::make_shared<Scope>()) {
  scope_->variables = std::move(variables);
}

Renderer::~Renderer() {
  for (const ScopePtr& scope : known_to_macros_) Variables().swap(scope->variables);
  for (const auto& space : namespaces_) Variables().swap(space->members);
}

std::string Renderer::run(const Body& body) {
  render(body);
  return std::move(out_);
}

void Renderer::print(std::string_view text) {
  runtime_.check_output(out_.size() + text.size());
  out_ += text;
}

Renderer::Flow Renderer::render(const Body& body) {
  const Runtime::Level level(runtime_);
  for (const Stmt& stmt : body) {
    const Flow flow = render(stmt);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::render(const Stmt& stmt) {
  runtime_.line = stmt.line;
  runtime_.take_steps();
  switch (stmt.kind) {
    case StmtKind::kText:
      print(stmt.text);
      break;
    case StmtKind::kPrint:
      print(to_text(runtime_, evaluate(*stmt.exprs[0])));
      break;
    case StmtKind::kIf:
      return render_if(stmt);
    case StmtKind::kFor:
      return render_for(stmt);
    case StmtKind::kSet:
      assign(stmt, evaluate(*stmt.exprs[0]), *scope_);
      break;
    case StmtKind::kSetBlock: {
      Value text = captured(stmt.bodies[0], inner_scope());
      if (stmt.exprs[0]) text = filtered(*stmt.exprs[0], text);
      assign(stmt, text, *scope_);
      break;
    }
    case StmtKind::kMacro:
      scope_->set(stmt.text, macro(stmt, stmt.text));
      break;
    case StmtKind::kCallBlock:
      call_block(stmt);
      break;
    case StmtKind::kFilterBlock: {
      const Value text = captured(stmt.bodies[0], inner_scope());
      print(to_text(runtime_, filtered(*stmt.exprs[0], text)));
      break;
    }
    case StmtKind::kWith:
      with_block(stmt);
      break;
    case StmtKind::kBlock:
      return render_inside(stmt.bodies[0], inner_scope());
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::render_if(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    if (is_true(evaluate(*stmt.exprs[i]))) return render(stmt.bodies[i]);
  }
  return stmt.bodies.size() > stmt.exprs.size() ? render(stmt.bodies.back()) : Flow::kOn;
}

Renderer::ScopePtr Renderer::inner_scope() const {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  return scope;
}

Renderer::Flow Renderer::render_inside(const Body& body, ScopePtr scope) {
  scope_.swap(scope);
  const Flow flow = render(body);
  scope_.swap(scope);
  return flow;
}

std::string Renderer::captured(const Body& body, ScopePtr scope) {
  std::string outer = std::exchange(out_, "");
  render_inside(body, std::move(scope));
  runtime_.take_bytes(out_.size());
  return std::exchange(out_, std::move(outer));
}

Renderer::Flow Renderer::render_for(const Stmt& stmt) {
  std::vector<Value> items = walk(runtime_, evaluate(*stmt.exprs[0]));
  if (stmt.exprs[1]) {
    std::vector<Value> chosen;
    for (const Value& item : items) {
      ScopePtr scope = inner_scope();
      assign(stmt, item, *scope);
      scope_.swap(scope);
      if (is_true(evaluate(*stmt.exprs[1]))) chosen.push_back(item);
      scope_.swap(scope);
    }
    items = std::move(chosen);
  }
  if (!items.empty()) return render_loop(stmt, std::move(items));
  return stmt.bodies.size() > 1 ? render_inside(stmt.bodies[1], inner_scope()) : Flow::kOn;
}

Renderer::Flow Renderer::render_loop(const Stmt& stmt, std::vector<Value> items) {
  const auto loop = std::make_shared<Loop>();
  loop->items = std::move(items);
  const auto size = std::ssize(loop->items);
  for (int64_t i = 0; i < size; ++i) {
    runtime_.line = stmt.line;
    runtime_.take_steps();
    loop->index0 = i;
    const ScopePtr scope = inner_scope();
    scope->set("loop", loop);
    assign(stmt, loop->items[i], *scope);
    if (render_inside(stmt.bodies[0], scope) == Flow::kBreak) break;
  }
  // Who kept the loop keeps no more than its place: no chains of loops within loops.
  loop->items.clear();
  loop->last_changed.clear();
  return Flow::kOn;
}

void Renderer::assign(const Stmt& stmt, const Value& value, Scope& scope) {
  if (!stmt.unpacks) return assign(stmt.targets[0], value, scope);
  const std::vector<Value> items = walk(runtime_, value);
  if (items.size() != stmt.targets.size()) {
    runtime_.fail("expected {} values to unpack, found {}", stmt.targets.size(), items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(stmt.targets[i], items[i], scope);
}

void Renderer::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.member.empty()) return scope.set(target.name, value);
  const Value* object = scope.find(target.name);
  if (object == nullptr || object->name_space() == nullptr) {
    runtime_.fail("set {}.{}: {} is no namespace", target.name, target.member, target.name);
  }
  if (target.member[0] == '_') runtime_.fail("set {}: not allowed", target.member);
  for (auto& [key, old] : object->name_space()->members) {
    if (key != target.member) continue;
    old = value;
    return;
  }
  object->name_space()->members.emplace_back(target.member, value);
}

Value Renderer::macro(const Stmt& stmt, const std::string& name) {
  known_to_macros_.push_back(scope_);
  auto function = std::make_shared<Function>();
  function->name = name;
  function->call = [this, &stmt, defined_in = scope_](Runtime&, Arguments& arguments) {
    return call_macro(stmt, defined_in, arguments);
  };
  return std::shared_ptr<const Function>(std::move(function));
}

Value Renderer::call_macro(const Stmt& stmt, const ScopePtr& defined_in, Arguments& arguments) {
  const Runtime::Level level(runtime_);
  auto scope = std::make_shared<Scope>();
  scope->parent = defined_in;
  ScopePtr caller_scope = std::exchange(scope_, scope);
  for (const Parameter& parameter : stmt.parameters) {
    const Value* given = arguments.take(parameter.name);
    Value value = given             ? *given
                  : parameter.value ? evaluate(*parameter.value)
                                    : Value(Undefined{parameter.name});
    scope->set(parameter.name, std::move(value));
  }
  if (const Value* caller = arguments.take_named("caller")) scope->set("caller", *caller);
  scope_ = std::move(caller_scope);
  return captured(stmt.bodies[0], scope);
}

void Renderer::call_block(const Stmt& stmt) {
  const Expr& expr = *stmt.exprs[0];
  const Value callee = evaluate(*expr.children[0]);
  Arguments arguments = evaluate_arguments(expr, "macro");
  arguments.named.emplace_back("caller", macro(stmt, "caller"));
  print(to_text(runtime_, call(callee, arguments)));
}

void Renderer::with_block(const Stmt& stmt) {
  const ScopePtr scope = inner_scope();
  for (const Parameter& parameter : stmt.parameters) {
    scope->set(parameter.name, evaluate(*parameter.value));
  }
  render_inside(stmt.bodies[0], scope);
}

}  // namespace kv::jinja
