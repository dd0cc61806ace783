#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace kv::jinja {

enum class ExprKind : uint8_t {
  kConstant,   // value
  kName,       // name
  kAttribute,  // children[0].name
  kItem,       // children[0][children[1]]
  kSlice,      // children[0][children[1] : children[2] : children[3]], each may be null
  kCall,       // children[0](arguments)
  kFilter,     // children[0] | name(arguments)
  kTest,       // children[0] is name(arguments)
  kUnary,      // name children[0]; name: - + not
  kBinary,     // children[0] name children[1]; name: + - * / // % ** ~ and or
  kCompare,    // children[0] compares[0] children[1] compares[1] ...
  kChoice,     // children[0] if children[1] else children[2], which may be null
  kList,
  kTuple,
  kDict,  // keys and values by turns
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;  // of the tree
  std::string name;
  Value value;
  std::vector<ExprPtr> children;  // for a call, the arguments without a name come after the first
  std::vector<std::pair<std::string, ExprPtr>> named;  // keyword arguments
  std::vector<std::string> compares;                   // == != < <= > >= in, not in
};

enum class StmtKind : uint8_t {
  kText,         // text
  kPrint,        // exprs[0]
  kFor,          // targets in exprs[0], exprs[1] (may be null) filters; bodies: loop, else
  kIf,           // exprs[i] -> bodies[i]; one body more: else
  kSet,          // targets = exprs[0]
  kSetBlock,     // targets = bodies[0] | exprs[0], a chain of filters over null
  kMacro,        // text(parameters) bodies[0]
  kCallBlock,    // exprs[0] is the call, with a caller(parameters) of bodies[0]
  kFilterBlock,  // bodies[0] | exprs[0]
  kWith,         // parameters with their values, then bodies[0]
  kBlock,        // bodies[0] as it stands
  kBreak,
  kContinue,
};

/// Where an assignment goes: a variable, or a member of a namespace.
struct Target {
  std::string name;
  std::string member;  // empty: a variable
};

struct Parameter {
  std::string name;
  ExprPtr value;  // the default; may be null
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  std::vector<Target> targets;
  bool unpacks = false;  // targets are the items of the value
  std::vector<Parameter> parameters;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
};

}  // namespace kv::jinja
