// Methods of list, dict and loop; those of str are in jinja_string_methods.cc.
#include <algorithm>

#include "text/jinja_operators.h"
#include "text/jinja_string_methods.h"

namespace kv::jinja {
namespace methods {
namespace {

Value list_index(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& what = arguments.need(runtime, "value");
  const auto& values = self.items()->values;
  runtime.take_steps(std::ssize(values));
  const auto at = std::find_if(values.begin(), values.end(),
                               [&](const Value& value) { return is_equal(value, what); });
  if (at == values.end()) runtime.fail("index: value not found");
  return static_cast<int64_t>(at - values.begin());
}

Value list_count(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& what = arguments.need(runtime, "value");
  const auto& values = self.items()->values;
  runtime.take_steps(std::ssize(values));
  return static_cast<int64_t>(std::count_if(
      values.begin(), values.end(), [&](const Value& value) { return is_equal(value, what); }));
}

const Methods kListMethods = {{"index", list_index}, {"count", list_count}};

Value dict_get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& key = arguments.need(runtime, "key");
  const Value* absent = arguments.take("default");
  runtime.take_steps(std::ssize(self.dict()->members) / 8);
  const Value* found = find_member(*self.dict(), key);
  return found ? *found : absent ? *absent : Value();
}

Value dict_items(Runtime& runtime, const Value& self, Arguments&) {
  std::vector<Value> out;
  self.dict()->content_is_read = true;
  for (const auto& [key, value] : self.dict()->members) {
    out.push_back(make_items(runtime, {key, value}, Items::Kind::kTuple));
  }
  return make_list(runtime, std::move(out));
}

template <bool kKeys>
Value dict_half(Runtime& runtime, const Value& self, Arguments&) {
  std::vector<Value> out;
  if (!kKeys) self.dict()->content_is_read = true;
  for (const auto& [key, value] : self.dict()->members) out.push_back(kKeys ? key : value);
  return make_list(runtime, std::move(out));
}

Value dict_copy(Runtime&, const Value& self, Arguments&) { return self; }

const Methods kDictMethods = {{"get", dict_get},
                              {"items", dict_items},
                              {"keys", dict_half<true>},
                              {"values", dict_half<false>},
                              {"copy", dict_copy}};

Value loop_cycle(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) runtime.fail("loop.cycle: expected values, found none");
  const auto at = static_cast<size_t>(self.loop()->index0) % arguments.positional.size();
  std::vector<Value> values = std::move(arguments.positional);
  arguments.positional.clear();
  return values[at];
}

Value loop_changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  Loop& loop = *self.loop();
  std::vector<Value> values = std::move(arguments.positional);
  arguments.positional.clear();
  runtime.take_steps(std::ssize(values));
  const bool is_changed =
      values.size() != loop.last_changed.size() ||
      !std::equal(values.begin(), values.end(), loop.last_changed.begin(), is_equal);
  loop.last_changed = std::move(values);
  return is_changed;
}

const Methods kLoopMethods = {{"cycle", loop_cycle}, {"changed", loop_changed}};

/// What Python's objects can do besides, so that a template that calls it is told so.
bool is_refused(const Value& value, const std::string& name) {
  static constexpr std::string_view kOfLists[] = {"append", "extend", "insert",  "pop",
                                                  "remove", "clear",  "reverse", "sort"};
  static constexpr std::string_view kOfDicts[] = {"pop", "update", "setdefault", "popitem",
                                                  "clear"};
  static constexpr std::string_view kOfStrings[] = {
      "format", "format_map", "encode",     "center",    "ljust",   "rjust",
      "zfill",  "swapcase",   "expandtabs", "translate", "casefold"};
  const auto is_in = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (value.items() && is_in(kOfLists)) || (value.dict() && is_in(kOfDicts)) ||
         (value.string() && is_in(kOfStrings));
}

}  // namespace
}  // namespace methods

Value method(Runtime& runtime, const Value& value, const std::string& name) {
  const methods::Methods* known = value.string()  ? &methods::string_methods()
                                  : value.dict()  ? &methods::kDictMethods
                                  : value.items() ? &methods::kListMethods
                                  : value.loop()  ? &methods::kLoopMethods
                                                  : nullptr;
  if (known == nullptr) return Undefined{name};
  const auto found = known->find(name);
  if (found == known->end()) {
    if (!methods::is_refused(value, name)) return Undefined{name};
    const bool changes = !value.string();
    runtime.fail("{}.{} is not {}", type_name(value), name,
                 changes ? "allowed: templates change nothing but namespaces" : "served");
  }
  const methods::Method call = found->second;
  auto function = std::make_shared<Function>();
  function->name = name;
  function->depth = depth_of(value) + 1;
  runtime.check_value_depth(function->depth);
  function->call = [self = value, call](Runtime& r, Arguments& a) { return call(r, self, a); };
  return std::shared_ptr<const Function>(std::move(function));
}

}  // namespace kv::jinja
