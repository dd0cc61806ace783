#include <map>

#include "text/jinja_filters.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

namespace kv::jinja {
namespace test_functions {
namespace {

using Test = bool (*)(Runtime&, const Value&, Arguments&);

template <char kFirst, char kSecond = '\0'>
bool compares(Runtime& runtime, const Value& value, Arguments& arguments) {
  constexpr char op[] = {kFirst, kSecond, '\0'};
  return compare(runtime, op, value, arguments.need(runtime, "other"));
}

bool is_in(Runtime& runtime, const Value& value, Arguments& arguments) {
  return compare(runtime, "in", value, arguments.need(runtime, "seq"));
}

bool remainder_is(Runtime& runtime, const Value& value, int64_t divisor, int64_t remainder) {
  if (divisor == 0) runtime.fail("divisibleby 0");
  const Value rest = binary_operator(runtime, "%", value, divisor);
  return is_equal(rest, remainder);
}

bool divides(Runtime& runtime, const Value& value, Arguments& arguments) {
  return remainder_is(runtime, value, arguments.need_integer(runtime, "num"), 0);
}

bool is_sequence(Runtime&, const Value& value, Arguments&) {
  return value.string() || value.dict() || value.is_undefined() ||
         (value.items() && value.items()->kind != Items::Kind::kLazy);
}

bool is_iterable(Runtime&, const Value& value, Arguments&) {
  return value.string() || value.dict() || value.items() || value.is_undefined() || value.loop();
}

/// A test of the value alone.
#define KV_JINJA_TEST(claim) [](Runtime&, const Value& value, Arguments&) -> bool { return claim; }

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> all = {
      {"!=", compares<'!', '='>},
      {"<", compares<'<'>},
      {"<=", compares<'<', '='>},
      {"==", compares<'=', '='>},
      {">", compares<'>'>},
      {">=", compares<'>', '='>},
      {"boolean", KV_JINJA_TEST(value.is_bool())},
      {"callable", KV_JINJA_TEST(value.function() != nullptr)},
      {"defined", KV_JINJA_TEST(!value.is_undefined())},
      {"divisibleby", divides},
      {"eq", compares<'=', '='>},
      {"equalto", compares<'=', '='>},
      {"even",
       [](Runtime& r, const Value& value, Arguments&) { return remainder_is(r, value, 2, 0); }},
      {"false", KV_JINJA_TEST(value.is_bool() && !value.boolean())},
      {"float", KV_JINJA_TEST(value.is_float())},
      {"ge", compares<'>', '='>},
      {"greaterthan", compares<'>'>},
      {"gt", compares<'>'>},
      {"in", is_in},
      {"integer", KV_JINJA_TEST(value.is_int())},
      {"iterable", is_iterable},
      {"le", compares<'<', '='>},
      {"lessthan", compares<'<'>},
      {"lower",
       [](Runtime& r, const Value& value, Arguments&) -> bool {
         return is_lower(to_text(r, value));
       }},
      {"lt", compares<'<'>},
      {"mapping", KV_JINJA_TEST(value.dict() != nullptr)},
      {"ne", compares<'!', '='>},
      {"none", KV_JINJA_TEST(value.is_none())},
      {"number", KV_JINJA_TEST(value.is_number())},
      {"odd",
       [](Runtime& r, const Value& value, Arguments&) { return remainder_is(r, value, 2, 1); }},
      {"sameas",
       [](Runtime& r, const Value& value, Arguments& a) -> bool {
         return value.is_same(a.need(r, "other"));
       }},
      {"sequence", is_sequence},
      {"string", KV_JINJA_TEST(value.is_string())},
      {"true", KV_JINJA_TEST(value.is_bool() && value.boolean())},
      {"undefined", KV_JINJA_TEST(value.is_undefined())},
      {"upper",
       [](Runtime& r, const Value& value, Arguments&) -> bool {
         return is_upper(to_text(r, value));
       }},
  };
  return all;
}

#undef KV_JINJA_TEST

}  // namespace
}  // namespace test_functions

bool is_test(std::string_view name) { return test_functions::tests().contains(name); }

bool apply_test(Runtime& runtime, std::string_view name, const Value& value, Arguments& arguments) {
  runtime.take_steps();
  arguments.function = name;
  const bool out = test_functions::tests().at(name)(runtime, value, arguments);
  arguments.finish(runtime);
  return out;
}

}  // namespace kv::jinja
