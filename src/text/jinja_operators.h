#pragma once

#include <string>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace kv::jinja {

/// What operators do to values, as Python does it. All fail through the runtime, naming the kinds,
/// where Python would raise; whole numbers have 64 bits and fail where they overflow.

/// op: - + not
Value unary_operator(Runtime& runtime, std::string_view op, const Value& value);

/// op: + - * / // % ** ~
Value binary_operator(Runtime& runtime, std::string_view op, const Value& a, const Value& b);

/// op: == != < <= > >= in, not in
bool compare(Runtime& runtime, std::string_view op, const Value& a, const Value& b);

/// a < b, for sorting too.
bool is_less(Runtime& runtime, const Value& a, const Value& b);

/// value.name: a method of the value, or else a member; undefined when it has neither.
Value attribute(Runtime& runtime, const Value& value, const std::string& name);

/// value[key]: a member, or else a method.
Value item(Runtime& runtime, const Value& value, const Value& key);

/// value[start:stop:step]; None where one is left out.
Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
            const Value& step);

/// The method `name` bound to `value`, or undefined.
Value method(Runtime& runtime, const Value& value, const std::string& name);

/// Fails when the value is undefined.
void expect_defined(Runtime& runtime, const Value& value);

/// len(value).
int64_t length(Runtime& runtime, const Value& value);

}  // namespace kv::jinja
