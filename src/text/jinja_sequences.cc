#include "text/jinja_sequences.h"

#include <algorithm>
#include <charconv>

#include "text/jinja_filters.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

namespace kv::jinja::sequences {
namespace {

Value lazy(Runtime& runtime, std::vector<Value> values) {
  return make_items(runtime, std::move(values), Items::Kind::kLazy);
}

/// The member that attribute="a.b.0" names.
Value member_at(Runtime& runtime, Value value, const Value& path) {
  if (!path.string()) return item(runtime, value, path);
  for (const std::string_view part : split_at(*path.string(), ".", -1)) {
    int64_t index = 0;
    const auto end = std::from_chars(part.data(), part.data() + part.size(), index).ptr;
    const bool is_index = !part.empty() && end == part.data() + part.size();
    value = item(runtime, value, is_index ? Value(index) : Value(part));
  }
  return value;
}

/// What items are compared by: a member, and letters of either case alike.
Value sort_key(Runtime& runtime, const Value& value, const Value* attribute, bool minds_case) {
  Value key = attribute && !attribute->is_none() ? member_at(runtime, value, *attribute) : value;
  if (minds_case || !key.string()) return key;
  runtime.take_bytes(key.string()->size());
  return to_lower(*key.string());
}

bool flag(const Value* value) { return value != nullptr && is_true(*value); }

/// The arguments behind the first `skip`, for the filter or test that an argument names.
Arguments rest_of(const Arguments& arguments, size_t skip) {
  Arguments out;
  out.function = arguments.function;
  out.named = arguments.named;
  for (size_t i = skip; i < arguments.positional.size(); ++i) {
    out.positional.push_back(arguments.positional[i]);
  }
  return out;
}

void drop(Arguments& arguments) {
  arguments.positional.clear();
  arguments.named.clear();
}

Value with_positions(Runtime& runtime, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  const auto less = [&](const auto& a, const auto& b) {
    return reverse ? is_less(runtime, b.first, a.first) : is_less(runtime, a.first, b.first);
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  std::vector<Value> out;
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return make_list(runtime, std::move(out));
}

}  // namespace

Value map(Runtime& runtime, const Value& value, Arguments& arguments) {
  const std::vector<Value> values = walk(runtime, value);
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const Value& attribute = arguments.need(runtime, "attribute");
    const Value* absent = arguments.take("default");
    for (const Value& each : values) {
      Value member = member_at(runtime, each, attribute);
      out.push_back(member.is_undefined() && absent ? *absent : member);
    }
    return lazy(runtime, std::move(out));
  }
  const Value name = arguments.positional[0];
  if (!name.string() || !is_filter(*name.string())) {
    runtime.fail("map: expected the name of a filter that is served");
  }
  for (const Value& each : values) {
    Arguments rest = rest_of(arguments, 1);
    out.push_back(apply_filter(runtime, *name.string(), each, rest));
  }
  drop(arguments);
  return lazy(runtime, std::move(out));
}

template <bool kKeeps, bool kByAttribute>
Value select(Runtime& runtime, const Value& value, Arguments& arguments) {
  constexpr size_t kTestAt = kByAttribute ? 1 : 0;
  if (kByAttribute && arguments.positional.empty()) {
    runtime.fail("{}: expected the name of a member", arguments.function);
  }
  const bool has_test = arguments.positional.size() > kTestAt;
  const Value name = has_test ? arguments.positional[kTestAt] : Value();
  if (has_test && (!name.string() || !is_test(*name.string()))) {
    runtime.fail("{}: expected the name of a test that is served", arguments.function);
  }
  std::vector<Value> out;
  for (const Value& each : walk(runtime, value)) {
    const Value tested = kByAttribute ? member_at(runtime, each, arguments.positional[0]) : each;
    Arguments rest = rest_of(arguments, kTestAt + 1);
    const bool passes =
        has_test ? apply_test(runtime, *name.string(), tested, rest) : is_true(tested);
    if (passes == kKeeps) out.push_back(each);
  }
  drop(arguments);
  return lazy(runtime, std::move(out));
}

template Value select<true, true>(Runtime&, const Value&, Arguments&);
template Value select<true, false>(Runtime&, const Value&, Arguments&);
template Value select<false, true>(Runtime&, const Value&, Arguments&);
template Value select<false, false>(Runtime&, const Value&, Arguments&);

Value sort(Runtime& runtime, const Value& value, Arguments& arguments) {
  const bool reverse = flag(arguments.take("reverse"));
  const bool minds_case = flag(arguments.take("case_sensitive"));
  const Value* attribute = arguments.take("attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : walk(runtime, value)) {
    keyed.emplace_back(sort_key(runtime, each, attribute, minds_case), each);
  }
  return with_positions(runtime, keyed, reverse);
}

Value dictsort(Runtime& runtime, const Value& value, Arguments& arguments) {
  const bool minds_case = flag(arguments.take("case_sensitive"));
  const Value* by = arguments.take("by");
  const bool reverse = flag(arguments.take("reverse"));
  if (!value.dict()) runtime.fail("dictsort: expected dict, found {}", type_name(value));
  const bool by_value = by && by->string() && *by->string() == "value";
  value.dict()->content_is_read = true;
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, member] : value.dict()->members) {
    keyed.emplace_back(sort_key(runtime, by_value ? member : key, nullptr, minds_case),
                       make_items(runtime, {key, member}, Items::Kind::kTuple));
  }
  return with_positions(runtime, keyed, reverse);
}

Value unique(Runtime& runtime, const Value& value, Arguments& arguments) {
  const bool minds_case = flag(arguments.take("case_sensitive"));
  const Value* attribute = arguments.take("attribute");
  std::vector<Value> seen, out;
  for (const Value& each : walk(runtime, value)) {
    Value key = sort_key(runtime, each, attribute, minds_case);
    runtime.take_steps(std::ssize(seen));
    const bool is_known = std::any_of(seen.begin(), seen.end(),
                                      [&](const Value& other) { return is_equal(key, other); });
    if (is_known) continue;
    seen.push_back(std::move(key));
    out.push_back(each);
  }
  return lazy(runtime, std::move(out));
}

Value join(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* between = arguments.take("d");
  const Value* attribute = arguments.take("attribute");
  const std::string separator = between ? to_text(runtime, *between) : "";
  std::string out;
  bool is_first = true;
  for (const Value& each : walk(runtime, value)) {
    if (!is_first) out += separator;
    is_first = false;
    const bool by_member = attribute && !attribute->is_none();
    const std::string text =
        to_text(runtime, by_member ? member_at(runtime, each, *attribute) : each);
    runtime.take_bytes(text.size() + separator.size());
    out += text;
  }
  return out;
}

Value sum(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* attribute = arguments.take("attribute");
  const Value* start = arguments.take("start");
  Value out = start ? *start : Value(int64_t{0});
  for (const Value& each : walk(runtime, value)) {
    const bool by_member = attribute && !attribute->is_none();
    out =
        binary_operator(runtime, "+", out, by_member ? member_at(runtime, each, *attribute) : each);
  }
  return out;
}

template <bool kLargest>
Value extreme(Runtime& runtime, const Value& value, Arguments& arguments) {
  const bool minds_case = flag(arguments.take("case_sensitive"));
  const Value* attribute = arguments.take("attribute");
  const std::vector<Value> values = walk(runtime, value);
  if (values.empty()) return Undefined{"the extreme of an empty sequence"};
  const Value* best = &values[0];
  for (const Value& each : values) {
    const Value a = sort_key(runtime, each, attribute, minds_case);
    const Value b = sort_key(runtime, *best, attribute, minds_case);
    if (kLargest ? is_less(runtime, b, a) : is_less(runtime, a, b)) best = &each;
  }
  return *best;
}

template Value extreme<true>(Runtime&, const Value&, Arguments&);
template Value extreme<false>(Runtime&, const Value&, Arguments&);

Value reverse(Runtime& runtime, const Value& value, Arguments&) {
  std::vector<Value> values = walk(runtime, value);
  std::reverse(values.begin(), values.end());
  if (!value.string()) return lazy(runtime, std::move(values));
  std::string out;
  for (const Value& letter : values) out += *letter.string();
  return out;
}

}  // namespace kv::jinja::sequences
