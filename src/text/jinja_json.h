#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace kv::jinja {

/// The filter tojson, as transformers has it: Python's json.dumps without escapes for HTML or for
/// characters beyond ASCII. Arguments ensure_ascii, indent, separators, sort_keys.
Value to_json(Runtime& runtime, const Value& value, Arguments& arguments);

/// A JSON document as a value; members keep their order.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json);

}  // namespace kv::jinja
