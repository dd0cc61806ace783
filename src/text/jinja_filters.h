#pragma once

#include <string>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace kv::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

/// value | name(arguments), for a name that is_filter. `arguments.function` names it in messages.
Value apply_filter(Runtime& runtime, std::string_view name, const Value& value,
                   Arguments& arguments);

/// value is name(arguments), for a name that is_test.
bool apply_test(Runtime& runtime, std::string_view name, const Value& value, Arguments& arguments);

}  // namespace kv::jinja
