#include "text/jinja_runtime.h"

#include <algorithm>

#include "kvscale/error.h"
#include "text/jinja_text.h"

namespace kv::jinja {

void Runtime::fail(std::string_view what) const {
  throw ValueError(fmt::format("chat template: line {}: {}", line, what));
}

void Runtime::fail_steps() const { fail("gives up after {} steps", limits_.steps); }

void Runtime::take_bytes(size_t n) {
  built_bytes_ += static_cast<int64_t>(std::min<size_t>(n, 1ull << 40));
  if (built_bytes_ > limits_.built_bytes) {
    fail("gives up: strings of more than {} bytes built", limits_.built_bytes);
  }
}

void Runtime::check_output(size_t bytes) const {
  if (static_cast<int64_t>(bytes) <= limits_.output_bytes) return;
  fail("gives up: more than {} bytes of text", limits_.output_bytes);
}

void Runtime::check_value_depth(int depth) const {
  if (depth > limits_.value_depth) fail("gives up: values nested deeper than {}", depth - 1);
}

Runtime::Level::Level(Runtime& runtime) : runtime_(runtime) {
  if (++runtime.depth_ <= runtime.limits_.depth) return;
  --runtime.depth_;
  runtime.fail("gives up: nested deeper than {}", runtime.limits_.depth);
}

const Value* Arguments::take(std::string_view name) {
  if (next_ < positional.size()) return &positional[next_++];
  return take_named(name);
}

const Value* Arguments::take_named(std::string_view name) {
  taken_.emplace_back(name);
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

const Value& Arguments::need(Runtime& runtime, std::string_view name) {
  const Value* value = take(name);
  if (value == nullptr) runtime.fail("{}: argument {} is missing", function, name);
  return *value;
}

const std::string& Arguments::need_text(Runtime& runtime, std::string_view name) {
  const Value& value = need(runtime, name);
  if (!value.string()) {
    runtime.fail("{}: {}: expected str, found {}", function, name, type_name(value));
  }
  return *value.string();
}

int64_t Arguments::need_integer(Runtime& runtime, std::string_view name) {
  const Value& value = need(runtime, name);
  if (!value.is_int() && !value.is_bool()) {
    runtime.fail("{}: {}: expected int, found {}", function, name, type_name(value));
  }
  return value.integer();
}

void Arguments::finish(Runtime& runtime) const {
  if (next_ < positional.size()) {
    runtime.fail("{}: takes at most {} arguments, found {}", function, next_, positional.size());
  }
  for (const auto& [key, value] : named) {
    if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) {
      runtime.fail("{}: has no argument {}", function, key);
    }
  }
}

std::vector<Value> walk(Runtime& runtime, const Value& value) {
  std::vector<Value> out;
  if (value.is_undefined()) return out;
  if (const Items* items = value.items()) {
    if (items->kind == Items::Kind::kLazy) {
      if (!items->is_spent) out = items->values;
      items->is_spent = true;
    } else {
      out = items->values;
    }
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, member] : dict->members) out.push_back(key);
  } else if (const std::string* text = value.string()) {
    runtime.take_steps(std::ssize(*text));
    for (const std::string_view c : characters(*text)) out.emplace_back(c);
  } else {
    runtime.fail("a {} cannot be walked over", type_name(value));
  }
  runtime.take_steps(std::ssize(out));
  return out;
}

}  // namespace kv::jinja
