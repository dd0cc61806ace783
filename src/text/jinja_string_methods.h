#pragma once

#include <map>
#include <string_view>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace kv::jinja::methods {

using Method = Value (*)(Runtime&, const Value& self, Arguments&);
using Methods = std::map<std::string_view, Method>;

/// What a str can do: Python's methods of it that templates use.
const Methods& string_methods();

}  // namespace kv::jinja::methods
