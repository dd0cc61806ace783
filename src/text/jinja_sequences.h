#pragma once

#include "text/jinja_runtime.h"
#include "text/jinja_value.h"

namespace kv::jinja::sequences {

/// Filters over sequences. Those that Jinja evaluates late give lazy items.
Value map(Runtime& runtime, const Value& value, Arguments& arguments);
template <bool kKeeps, bool kByAttribute>
Value select(Runtime& runtime, const Value& value, Arguments& arguments);
Value sort(Runtime& runtime, const Value& value, Arguments& arguments);
Value dictsort(Runtime& runtime, const Value& value, Arguments& arguments);
Value unique(Runtime& runtime, const Value& value, Arguments& arguments);
Value join(Runtime& runtime, const Value& value, Arguments& arguments);
Value sum(Runtime& runtime, const Value& value, Arguments& arguments);
template <bool kLargest>
Value extreme(Runtime& runtime, const Value& value, Arguments& arguments);
Value reverse(Runtime& runtime, const Value& value, Arguments& arguments);

}  // namespace kv::jinja::sequences
