#include "text/jinja_value.h"

#include <algorithm>

#include "text/jinja_runtime.h"
#include "text/jinja_text.h"

namespace kv::jinja {

bool Value::is_same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (items() || dict() || name_space() || function() || loop()) {
    return std::visit(
        [](const auto& a, const auto& b) {
          if constexpr (std::is_same_v<decltype(a), decltype(b)>) {
            if constexpr (requires { a.get(); }) return a.get() == b.get();
          }
          return false;
        },
        data_, other.data_);
  }
  return is_equal(*this, other);
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return "str";
  if (value.dict()) return "dict";
  if (value.name_space()) return "namespace";
  if (value.loop()) return "loop";
  if (value.function()) return "function";
  switch (value.items()->kind) {
    case Items::Kind::kList:
      return "list";
    case Items::Kind::kTuple:
      return "tuple";
    default:
      return "generator";
  }
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.number() != 0;
  if (const std::string* text = value.string()) return !text->empty();
  if (const Items* items = value.items()) {
    return items->kind == Items::Kind::kLazy || !items->values.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->members.empty();
  return true;
}

namespace {

bool items_are_equal(const Items& a, const Items& b) {
  if (a.kind != b.kind || a.kind == Items::Kind::kLazy) return &a == &b;
  return std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), is_equal);
}

bool dicts_are_equal(const Dict& a, const Dict& b) {
  a.content_is_read = b.content_is_read = true;
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
    const Value* other = find_member(b, member.first);
    return other != nullptr && is_equal(member.second, *other);
  });
}

}  // namespace

bool is_equal(const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_number() && b.is_number()) {
    const bool has_float = a.is_float() || b.is_float();
    return has_float ? a.number() == b.number() : a.integer() == b.integer();
  }
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.items() && b.items()) return items_are_equal(*a.items(), *b.items());
  if (a.dict() && b.dict()) return dicts_are_equal(*a.dict(), *b.dict());
  if (a.name_space()) return a.name_space() == b.name_space();
  if (a.function()) return a.function() == b.function();
  return a.loop() && a.loop() == b.loop();
}

const Value* find_member(const Dict& dict, const Value& key) {
  for (const auto& [name, value] : dict.members) {
    if (!is_equal(name, key)) continue;
    if (key.string() && *key.string() == "content") dict.content_is_read = true;
    return &value;
  }
  return nullptr;
}

namespace {

void append_all(Runtime& runtime, std::string& out, const std::vector<Value>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(runtime, out, values[i]);
  }
}

void append_items(Runtime& runtime, std::string& out, const Items& items) {
  const bool is_tuple = items.kind == Items::Kind::kTuple;
  out += is_tuple ? '(' : '[';
  append_all(runtime, out, items.values);
  if (is_tuple && items.values.size() == 1) out += ',';
  out += is_tuple ? ')' : ']';
}

void append_dict(Runtime& runtime, std::string& out, const Dict& dict) {
  dict.content_is_read = true;
  out += '{';
  bool is_first = true;
  for (const auto& [key, value] : dict.members) {
    if (!is_first) out += ", ";
    is_first = false;
    append_repr(runtime, out, key);
    out += ": ";
    append_repr(runtime, out, value);
  }
  out += '}';
}

}  // namespace

void append_repr(Runtime& runtime, std::string& out, const Value& value) {
  runtime.take_steps();
  if (const std::string* text = value.string()) {
    runtime.take_bytes(text->size());
    out += quoted(*text);
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (const Dict* dict = value.dict()) {
    append_dict(runtime, out, *dict);
  } else if (value.items() && value.items()->kind != Items::Kind::kLazy) {
    append_items(runtime, out, *value.items());
  } else {
    out += to_text(runtime, value);
  }
}

std::string to_text(Runtime& runtime, const Value& value) {
  if (const std::string* text = value.string()) return *text;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_float()) return float_text(value.number());
  std::string out;
  if (value.dict() || (value.items() && value.items()->kind != Items::Kind::kLazy)) {
    append_repr(runtime, out, value);
    runtime.take_bytes(out.size());
    return out;
  }
  runtime.fail("a {} has no text to print", type_name(value));
}

int depth_of(const Value& value) {
  if (const Items* items = value.items()) return items->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const Function* function = value.function()) return function->depth;
  return 0;
}

Value make_items(Runtime& runtime, std::vector<Value> values, Items::Kind kind) {
  runtime.take_steps(std::ssize(values));
  auto out = std::make_shared<Items>();
  for (const Value& value : values) out->depth = std::max(out->depth, 1 + depth_of(value));
  runtime.check_value_depth(out->depth);
  out->kind = kind;
  out->values = std::move(values);
  return std::shared_ptr<const Items>(std::move(out));
}

Value make_dict(Runtime& runtime, Members members) {
  runtime.take_steps(std::ssize(members));
  auto out = std::make_shared<Dict>();
  for (const auto& [key, value] : members) {
    if (!key.is_string() && !key.is_number() && !key.is_none()) {
      runtime.fail("a dict's key: expected a string or a number, found {}", type_name(key));
    }
    out->depth = std::max(out->depth, 1 + depth_of(value));
  }
  runtime.check_value_depth(out->depth);
  out->members = std::move(members);
  return std::shared_ptr<const Dict>(std::move(out));
}

}  // namespace kv::jinja
