#include "text/jinja_filters.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "text/jinja_json.h"
#include "text/jinja_operators.h"
#include "text/jinja_sequences.h"
#include "text/jinja_text.h"

namespace kv::jinja {
namespace filter_functions {
namespace {

using Filter = Value (*)(Runtime&, const Value&, Arguments&);

std::string text_of(Runtime& runtime, const Value& value) {
  std::string out = to_text(runtime, value);
  runtime.take_bytes(out.size());
  runtime.take_steps(std::ssize(out) / 64);
  return out;
}

template <std::string (*kChange)(std::string_view)>
Value changed(Runtime& runtime, const Value& value, Arguments&) {
  return kChange(text_of(runtime, value));
}

Value trim(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* chars = arguments.take("chars");
  const std::string text = text_of(runtime, value);
  if (chars == nullptr || chars->is_none()) return strip_left(strip_right(text));
  if (!chars->string()) runtime.fail("trim: chars: expected str, found {}", type_name(*chars));
  return strip_left(strip_right(text, *chars->string()), *chars->string());
}

Value absent_default(Runtime&, const Value& value, Arguments& arguments) {
  const Value* otherwise = arguments.take("default_value");
  const Value* by_truth = arguments.take("boolean");
  const bool is_missing =
      value.is_undefined() || (by_truth && is_true(*by_truth) && !is_true(value));
  if (!is_missing) return value;
  return otherwise ? *otherwise : Value("");
}

Value count(Runtime& runtime, const Value& value, Arguments&) { return length(runtime, value); }

Value first(Runtime& runtime, const Value& value, Arguments&) {
  const std::vector<Value> values = walk(runtime, value);
  return values.empty() ? Value(Undefined{"the first of an empty sequence"}) : values.front();
}

Value last(Runtime& runtime, const Value& value, Arguments&) {
  const std::vector<Value> values = walk(runtime, value);
  return values.empty() ? Value(Undefined{"the last of an empty sequence"}) : values.back();
}

Value to_list(Runtime& runtime, const Value& value, Arguments&) {
  return make_list(runtime, walk(runtime, value));
}

Value to_string(Runtime& runtime, const Value& value, Arguments&) {
  return value.is_undefined() ? Value("") : Value(text_of(runtime, value));
}

Value same(Runtime&, const Value& value, Arguments&) { return value; }

Value absolute(Runtime& runtime, const Value& value, Arguments&) {
  if (!value.is_number()) runtime.fail("abs of {}", type_name(value));
  return value.number() < 0 ? unary_operator(runtime, "-", value)
                            : unary_operator(runtime, "+", value);
}

/// A number that takes all of the text, white space aside.
template <class T>
bool reads_as(std::string_view text, T& value) {
  text = strip_left(strip_right(text));
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

Value truncated(Runtime& runtime, double value, const Value& otherwise) {
  if (std::isnan(value)) return otherwise;
  if (!(std::abs(value) < 9.2e18)) runtime.fail("int: {} is more than 64 bits hold", value);
  return static_cast<int64_t>(value);
}

Value to_int(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* given = arguments.take("default");
  const Value otherwise = given ? *given : Value(int64_t{0});
  expect_defined(runtime, value);
  if (value.is_int() || value.is_bool()) return value.integer();
  if (value.is_float()) return truncated(runtime, value.number(), otherwise);
  if (!value.string()) return otherwise;
  int64_t whole = 0;
  if (reads_as(*value.string(), whole)) return whole;
  double number = 0;
  if (reads_as(*value.string(), number)) return truncated(runtime, number, otherwise);
  return otherwise;
}

Value to_float(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* given = arguments.take("default");
  expect_defined(runtime, value);
  if (value.is_number()) return value.number();
  double number = 0;
  if (value.string() && reads_as(*value.string(), number)) return number;
  return given ? *given : Value(0.0);
}

Value round(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* precision = arguments.take("precision");
  const Value* method = arguments.take("method");
  if (!value.is_number()) runtime.fail("round of {}", type_name(value));
  const int64_t digits = precision && precision->is_int() ? precision->integer() : 0;
  if (digits < 0 || digits > 15) runtime.fail("round: expected 0 to 15 digits, found {}", digits);
  const std::string how = method ? to_text(runtime, *method) : "common";
  if (how == "common") {
    if (!value.is_float()) return value.integer();
    double out = 0;
    reads_as(fmt::format("{:.{}f}", value.number(), digits), out);
    return out;
  }
  if (how != "ceil" && how != "floor") runtime.fail("round: expected common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * scale;
  return (how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value replace(Runtime& runtime, const Value& value, Arguments& arguments) {
  const std::string from = to_text(runtime, arguments.need(runtime, "old"));
  const std::string to = to_text(runtime, arguments.need(runtime, "new"));
  const Value* most = arguments.take("count");
  const std::string text = text_of(runtime, value);
  const size_t places = from.empty() ? text.size() + 1 : text.size() / from.size();
  runtime.take_bytes(places * to.size());
  return replaced(text, from, to, most && most->is_int() ? most->integer() : -1);
}

Value indent(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Value* width = arguments.take("width");
  const Value* with_first = arguments.take("first");
  const Value* with_blank = arguments.take("blank");
  std::string space(4, ' ');
  if (width && width->string()) space = *width->string();
  if (width && width->is_int()) {
    runtime.take_bytes(static_cast<size_t>(std::max<int64_t>(width->integer(), 0)));
    space.assign(static_cast<size_t>(std::max<int64_t>(width->integer(), 0)), ' ');
  }
  const std::string text = text_of(runtime, value) + "\n";
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(text)) {
    runtime.take_bytes(space.size() + line.size());
    if (!is_first) out += '\n';
    const bool indents = is_first ? with_first && is_true(*with_first)
                                  : !line.empty() || (with_blank && is_true(*with_blank));
    if (indents) out += space;
    out += line;
    is_first = false;
  }
  return out;
}

Value wordcount(Runtime& runtime, const Value& value, Arguments&) {
  // Words as a regular expression has them: letters, digits and underscores.
  const std::string text = text_of(runtime, value);
  int64_t words = 0;
  bool in_word = false;
  for (const std::string_view c : characters(text)) {
    const bool is_word = c == "_" || is_all(c, "alnum");
    words += is_word && !in_word;
    in_word = is_word;
  }
  return words;
}

Value items(Runtime& runtime, const Value& value, Arguments&) {
  std::vector<Value> out;
  if (!value.is_undefined()) {
    if (!value.dict()) runtime.fail("items: expected dict, found {}", type_name(value));
    value.dict()->content_is_read = true;
    for (const auto& [key, member] : value.dict()->members) {
      out.push_back(make_items(runtime, {key, member}, Items::Kind::kTuple));
    }
  }
  return make_items(runtime, std::move(out), Items::Kind::kLazy);
}

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> all = {
      {"abs", absolute},
      {"capitalize", changed<capitalized>},
      {"count", count},
      {"d", absent_default},
      {"default", absent_default},
      {"dictsort", sequences::dictsort},
      {"first", first},
      {"float", to_float},
      {"indent", indent},
      {"int", to_int},
      {"items", items},
      {"join", sequences::join},
      {"last", last},
      {"length", count},
      {"list", to_list},
      {"lower", changed<to_lower>},
      {"map", sequences::map},
      {"max", sequences::extreme<true>},
      {"min", sequences::extreme<false>},
      {"reject", sequences::select<false, false>},
      {"rejectattr", sequences::select<false, true>},
      {"replace", replace},
      {"reverse", sequences::reverse},
      {"round", round},
      {"safe", same},
      {"select", sequences::select<true, false>},
      {"selectattr", sequences::select<true, true>},
      {"sort", sequences::sort},
      {"string", to_string},
      {"sum", sequences::sum},
      {"title", changed<word_title>},
      {"tojson", to_json},
      {"trim", trim},
      {"unique", sequences::unique},
      {"upper", changed<to_upper>},
      {"wordcount", wordcount},
  };
  return all;
}

}  // namespace
}  // namespace filter_functions

bool is_filter(std::string_view name) { return filter_functions::filters().contains(name); }

Value apply_filter(Runtime& runtime, std::string_view name, const Value& value,
                   Arguments& arguments) {
  runtime.take_steps();
  arguments.function = name;
  Value out = filter_functions::filters().at(name)(runtime, value, arguments);
  arguments.finish(runtime);
  return out;
}

}  // namespace kv::jinja
