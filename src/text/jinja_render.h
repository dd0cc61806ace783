#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace kv::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

/// The variables of a stretch of a template. Names are looked for from the inside outwards.
struct Scope {
  std::shared_ptr<Scope> parent;
  Variables variables;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

/// Renders one template once.
class Renderer {
 public:
  Renderer(Runtime& runtime, Variables variables);
  /// Macros know the scope that knows them, and namespaces may hold each other: these rings are
  /// opened here.
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  /// Throws ValueError with the line for whatever Jinja would raise, and beyond the limits.
  std::string run(const Body& body);

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  Flow render(const Body& body);
  Flow render(const Stmt& stmt);
  Flow render_if(const Stmt& stmt);
  Flow render_for(const Stmt& stmt);
  Flow render_loop(const Stmt& stmt, std::vector<Value> items);
  /// The body in a scope of its own.
  Flow render_inside(const Body& body, ScopePtr scope);
  /// The body's text instead of its output.
  std::string captured(const Body& body, ScopePtr scope);
  void call_block(const Stmt& stmt);
  void with_block(const Stmt& stmt);
  void print(std::string_view text);

  void assign(const Stmt& stmt, const Value& value, Scope& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  ScopePtr inner_scope() const;
  Value macro(const Stmt& stmt, const std::string& name);
  Value call_macro(const Stmt& stmt, const ScopePtr& defined_in, Arguments& arguments);

  Value evaluate(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  /// A chain of filters over a text that is no expression.
  Value filtered(const Expr& chain, Value text);
  Value look_up(const std::string& name);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& exprs, size_t from);
  Arguments evaluate_arguments(const Expr& call, std::string function);
  Value call(const Value& callee, Arguments& arguments);
  Value make_namespace(Arguments& arguments);

  Runtime& runtime_;
  std::string out_;
  ScopePtr scope_;
  std::vector<ScopePtr> known_to_macros_;               // for the destructor
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // likewise
};

/// Jinja's and transformers' globals but namespace: range, dict, raise_exception, strftime_now; or
/// undefined.
Value global(Runtime& runtime, const std::string& name);

}  // namespace kv::jinja
