#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_text.h"

namespace kv::jinja {
namespace {

[[noreturn]] void fail_operands(Runtime& runtime, std::string_view op, const Value& a,
                                const Value& b) {
  runtime.fail("{} between {} and {}", op, type_name(a), type_name(b));
}

/// Python's remainder has the sign of the divisor.
int64_t floor_modulo(int64_t a, int64_t b) {
  const int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(Runtime& runtime, int64_t base, int64_t exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  int64_t out = 1;
  for (int64_t i = 0; i < exponent && out != 0 && !(out == 1 && base == 1); ++i) {
    runtime.take_steps();
    if (__builtin_mul_overflow(out, base, &out)) runtime.fail("** is more than 64 bits hold");
  }
  return out;
}

Value integer_operator(Runtime& runtime, std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflows = false;
  if (op == "+") overflows = __builtin_add_overflow(a, b, &out);
  if (op == "-") overflows = __builtin_sub_overflow(a, b, &out);
  if (op == "*") overflows = __builtin_mul_overflow(a, b, &out);
  if (op == "**") return integer_power(runtime, a, b);
  if (op == "%") return floor_modulo(a, b);
  if (op == "//") {
    if (b == -1) return integer_operator(runtime, "-", 0, a);
    return (a - floor_modulo(a, b)) / b;
  }
  if (overflows) runtime.fail("{} is more than 64 bits hold", op);
  return out;
}

Value number_operator(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.number() == 0) runtime.fail("{} by zero", op);
  if (op != "/" && !a.is_float() && !b.is_float()) {
    return integer_operator(runtime, op, a.integer(), b.integer());
  }
  const double x = a.number(), y = b.number();
  if (op == "+") return x + y;
  if (op == "-") return x - y;
  if (op == "*") return x * y;
  if (op == "/") return x / y;
  if (op == "//") return std::floor(x / y);
  if (op == "%") return x - y * std::floor(x / y);
  return std::pow(x, y);
}

Value repeated(Runtime& runtime, const Value& what, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (const std::string* text = what.string()) {
    runtime.take_bytes(static_cast<size_t>(std::min<int64_t>(times, INT32_MAX)) * text->size());
    if (text->empty()) return "";
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += *text;
    return out;
  }
  const Items& items = *what.items();
  std::vector<Value> out;
  if (items.values.empty()) return what;
  runtime.take_steps(std::min<int64_t>(times, INT32_MAX) * std::ssize(items.values));
  for (int64_t i = 0; i < times; ++i) {
    out.insert(out.end(), items.values.begin(), items.values.end());
  }
  return make_items(runtime, std::move(out), items.kind);
}

bool is_sequence(const Value& value) {
  return value.string() || (value.items() && value.items()->kind != Items::Kind::kLazy);
}

Value joined(Runtime& runtime, const Value& a, const Value& b) {
  if (a.string() && b.string()) {
    runtime.take_bytes(a.string()->size() + b.string()->size());
    return *a.string() + *b.string();
  }
  const bool are_lists = a.items() && b.items() && a.items()->kind == b.items()->kind &&
                         a.items()->kind != Items::Kind::kLazy;
  if (!are_lists) fail_operands(runtime, "+", a, b);
  std::vector<Value> out = a.items()->values;
  out.insert(out.end(), b.items()->values.begin(), b.items()->values.end());
  return make_items(runtime, std::move(out), a.items()->kind);
}

/// Long strings are compared and searched at a step for 64 bytes.
void take_work(Runtime& runtime, size_t bytes) {
  runtime.take_steps(static_cast<int64_t>(bytes / 64));
}

bool contains(Runtime& runtime, const Value& container, const Value& what) {
  if (const std::string* text = container.string()) {
    if (!what.string()) fail_operands(runtime, "in", what, container);
    take_work(runtime, text->size());
    return text->find(*what.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (what.dict() || (what.items() && !what.is_tuple()))
      fail_operands(runtime, "in", what, container);
    runtime.take_steps(std::ssize(dict->members) / 8);
    return std::any_of(dict->members.begin(), dict->members.end(),
                       [&](const auto& member) { return is_equal(member.first, what); });
  }
  const std::vector<Value> values = walk(runtime, container);
  return std::any_of(values.begin(), values.end(),
                     [&](const Value& value) { return is_equal(value, what); });
}

}  // namespace

void expect_defined(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) runtime.fail("{} is undefined", value.undefined().name);
}

int64_t length(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.string()) {
    take_work(runtime, text->size());
    return static_cast<int64_t>(count_characters(*text));
  }
  if (value.items() && value.items()->kind != Items::Kind::kLazy) {
    return std::ssize(value.items()->values);
  }
  if (const Dict* dict = value.dict()) return std::ssize(dict->members);
  if (const Loop* loop = value.loop()) return std::ssize(loop->items);
  runtime.fail("a {} has no length", type_name(value));
}

Value unary_operator(Runtime& runtime, std::string_view op, const Value& value) {
  if (op == "not") return !is_true(value);
  expect_defined(runtime, value);
  if (!value.is_number()) runtime.fail("{} before {}", op, type_name(value));
  if (op == "+") return value.is_float() ? Value(value.number()) : Value(value.integer());
  if (value.is_float()) return -value.number();
  return integer_operator(runtime, "-", 0, value.integer());
}

Value binary_operator(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  if (op == "~") {
    const std::string left = to_text(runtime, a), right = to_text(runtime, b);
    runtime.take_bytes(left.size() + right.size());
    return left + right;
  }
  expect_defined(runtime, a);
  expect_defined(runtime, b);
  if (a.is_number() && b.is_number()) return number_operator(runtime, op, a, b);
  if (op == "+") return joined(runtime, a, b);
  if (op == "*" && is_sequence(a) && b.is_number() && !b.is_float()) {
    return repeated(runtime, a, b.integer());
  }
  if (op == "*" && is_sequence(b) && a.is_number() && !a.is_float()) {
    return repeated(runtime, b, a.integer());
  }
  if (op == "%" && a.string()) runtime.fail("formatting of strings with % is not served");
  fail_operands(runtime, op, a, b);
}

bool is_less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.take_steps();
  expect_defined(runtime, a);
  expect_defined(runtime, b);
  if (a.is_number() && b.is_number()) {
    const bool has_float = a.is_float() || b.is_float();
    return has_float ? a.number() < b.number() : a.integer() < b.integer();
  }
  if (a.string() && b.string()) {  // UTF-8 sorts as its code points do
    take_work(runtime, std::min(a.string()->size(), b.string()->size()));
    return *a.string() < *b.string();
  }
  if (a.items() && b.items() && a.items()->kind == b.items()->kind) {
    const auto& x = a.items()->values;
    const auto& y = b.items()->values;
    return std::lexicographical_compare(
        x.begin(), x.end(), y.begin(), y.end(),
        [&](const Value& l, const Value& r) { return is_less(runtime, l, r); });
  }
  fail_operands(runtime, "<", a, b);
}

bool compare(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  if (op == "in") return contains(runtime, b, a);
  if (op == "not in") return !contains(runtime, b, a);
  if (op == "==" || op == "!=") {
    if (a.string()) take_work(runtime, a.string()->size());
    if (a.items()) runtime.take_steps(std::ssize(a.items()->values));
    if (a.dict()) runtime.take_steps(std::ssize(a.dict()->members));
    return is_equal(a, b) == (op == "==");
  }
  if (op == "<") return is_less(runtime, a, b);
  if (op == ">") return is_less(runtime, b, a);
  return op == "<=" ? is_less(runtime, a, b) || is_equal(a, b)
                    : is_less(runtime, b, a) || is_equal(a, b);
}

namespace {

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto size = std::ssize(loop.items);
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "revindex") return static_cast<int64_t>(size - loop.index0);
  if (name == "revindex0") return static_cast<int64_t>(size - loop.index0 - 1);
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return loop.index0 + 1 == size;
  if (name == "length") return static_cast<int64_t>(size);
  if (name == "depth") return int64_t{1};  // only recursive loops are deeper
  if (name == "depth0") return int64_t{0};
  if (size == 0) return Undefined{"loop." + name};  // it has ended
  if (name == "previtem" && loop.index0 > 0) return loop.items[loop.index0 - 1];
  if (name == "nextitem" && loop.index0 + 1 < size) return loop.items[loop.index0 + 1];
  return Undefined{"loop." + name};
}

}  // namespace

Value attribute(Runtime& runtime, const Value& value, const std::string& name) {
  expect_defined(runtime, value);
  if (name.starts_with("__")) return Undefined{name};  // the sandbox hides them
  Value out = method(runtime, value, name);
  if (!out.is_undefined()) return out;
  if (const Dict* dict = value.dict()) {
    runtime.take_steps(std::ssize(dict->members) / 8);
    if (const Value* found = find_member(*dict, name)) return *found;
  }
  if (const Namespace* space = value.name_space()) {
    for (const auto& [key, member] : space->members) {
      if (key == name) return member;
    }
  }
  if (const Loop* loop = value.loop()) return loop_attribute(*loop, name);
  return Undefined{fmt::format("{}.{}", type_name(value), name)};
}

Value item(Runtime& runtime, const Value& value, const Value& key) {
  expect_defined(runtime, value);
  if (const Dict* dict = value.dict()) {
    runtime.take_steps(std::ssize(dict->members) / 8);
    if (const Value* found = find_member(*dict, key)) return *found;
  }
  if (key.string()) return attribute(runtime, value, *key.string());
  const bool is_index = (key.is_int() || key.is_bool()) && is_sequence(value);
  if (!is_index) return Undefined{fmt::format("{}[{}]", type_name(value), type_name(key))};
  const int64_t size = length(runtime, value);
  const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
  if (index < 0 || index >= size) {
    return Undefined{fmt::format("{}[{}]", type_name(value), key.integer())};
  }
  if (value.items()) return value.items()->values[index];
  runtime.take_steps(size / 16);
  return characters(*value.string())[index];
}

}  // namespace kv::jinja
