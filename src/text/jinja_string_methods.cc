#include "text/jinja_string_methods.h"

#include <algorithm>

#include "text/jinja_operators.h"
#include "text/jinja_text.h"

namespace kv::jinja::methods {
namespace {

/// A list of texts.
Value list_of(Runtime& runtime, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  for (const std::string_view part : parts) {
    runtime.take_bytes(part.size());
    out.emplace_back(part);
  }
  return make_list(runtime, std::move(out));
}

template <bool kLeft, bool kRight>
Value strip(Runtime& runtime, const Value& self, Arguments& arguments) {
  std::string_view text = *self.string();
  const Value* chars = arguments.take("chars");
  runtime.take_bytes(text.size());
  if (chars == nullptr || chars->is_none()) {
    if (kLeft) text = strip_left(text);
    if (kRight) text = strip_right(text);
    return text;
  }
  if (!chars->string()) runtime.fail("strip: expected str, found {}", type_name(*chars));
  if (kLeft) text = strip_left(text, *chars->string());
  if (kRight) text = strip_right(text, *chars->string());
  return text;
}

template <bool kFromRight>
Value split(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value* separator = arguments.take("sep");
  const Value* most = arguments.take("maxsplit");
  if (most && !most->is_int()) runtime.fail("split: maxsplit: expected int");
  const int64_t limit = most ? most->integer() : -1;
  runtime.take_steps(std::ssize(*self.string()) / 4);
  if (separator == nullptr || separator->is_none()) {
    if (kFromRight && limit >= 0) runtime.fail("rsplit at white space is not served");
    return list_of(runtime, split_at_space(*self.string(), limit));
  }
  if (!separator->string() || separator->string()->empty()) {
    runtime.fail("split: sep: expected a str that is not empty");
  }
  return list_of(runtime, kFromRight ? split_right_at(*self.string(), *separator->string(), limit)
                                     : split_at(*self.string(), *separator->string(), limit));
}

template <bool kFromRight>
Value partition(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = *self.string();
  const std::string& separator = arguments.need_text(runtime, "sep");
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  std::vector<Value> out = {text, "", ""};
  if (at != std::string::npos) {
    out = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (kFromRight) {
    out = {"", "", text};
  }
  runtime.take_bytes(text.size());
  return make_items(runtime, std::move(out), Items::Kind::kTuple);
}

template <bool kStart>
Value has_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Value& affix = arguments.need(runtime, "prefix");
  const auto has = [&](const Value& one) {
    if (!one.string()) runtime.fail("startswith: expected str, found {}", type_name(one));
    return kStart ? self.string()->starts_with(*one.string())
                  : self.string()->ends_with(*one.string());
  };
  if (!affix.is_tuple()) return has(affix);
  const auto& all = affix.items()->values;
  return std::any_of(all.begin(), all.end(), has);
}

template <bool kStart>
Value without_affix(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = *self.string();
  const std::string& affix = arguments.need_text(runtime, "prefix");
  runtime.take_bytes(text.size());
  if (kStart) return text.starts_with(affix) ? text.substr(affix.size()) : text;
  return text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text;
}

template <bool kFromRight, bool kMustBe>
Value find(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& text = *self.string();
  const std::string& what = arguments.need_text(runtime, "sub");
  runtime.take_steps(std::ssize(text) / 64);
  const size_t at = kFromRight ? text.rfind(what) : text.find(what);
  if (at == std::string::npos) {
    if (kMustBe) runtime.fail("index: substring not found");
    return int64_t{-1};
  }
  return static_cast<int64_t>(count_characters(text.substr(0, at)));
}

Value count_text(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& what = arguments.need_text(runtime, "sub");
  if (what.empty()) return length(runtime, self) + 1;
  runtime.take_steps(std::ssize(*self.string()) / 4);
  return static_cast<int64_t>(split_at(*self.string(), what, -1).size() - 1);
}

Value replace(Runtime& runtime, const Value& self, Arguments& arguments) {
  const std::string& from = arguments.need_text(runtime, "old");
  const std::string& to = arguments.need_text(runtime, "new");
  const Value* count = arguments.take("count");
  if (count && !count->is_int()) runtime.fail("replace: count: expected int");
  const std::string& text = *self.string();
  const size_t most = from.empty() ? text.size() + 1 : text.size() / from.size();
  runtime.take_bytes(text.size() + most * to.size());
  return replaced(text, from, to, count ? count->integer() : -1);
}

Value join(Runtime& runtime, const Value& self, Arguments& arguments) {
  std::string out;
  bool is_first = true;
  for (const Value& part : walk(runtime, arguments.need(runtime, "iterable"))) {
    if (!part.string()) runtime.fail("join: expected str, found {}", type_name(part));
    runtime.take_bytes(part.string()->size() + self.string()->size());
    if (!is_first) out += *self.string();
    is_first = false;
    out += *part.string();
  }
  return out;
}

template <std::string (*kChange)(std::string_view)>
Value changed(Runtime& runtime, const Value& self, Arguments&) {
  runtime.take_bytes(2 * self.string()->size());
  runtime.take_steps(std::ssize(*self.string()) / 16);
  return kChange(*self.string());
}

Value lines(Runtime& runtime, const Value& self, Arguments&) {
  runtime.take_steps(std::ssize(*self.string()) / 16);
  return list_of(runtime, split_lines(*self.string()));
}

}  // namespace

const Methods& string_methods() {
  static const Methods all = {
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", lines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"startswith", has_affix<true>},
      {"endswith", has_affix<false>},
      {"removeprefix", without_affix<true>},
      {"removesuffix", without_affix<false>},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count_text},
      {"replace", replace},
      {"join", join},
      {"upper", changed<to_upper>},
      {"lower", changed<to_lower>},
      {"title", changed<to_title>},
      {"capitalize", changed<capitalized>},
      {"isupper",
       [](Runtime&, const Value& self, Arguments&) { return Value(is_upper(*self.string())); }},
      {"islower",
       [](Runtime&, const Value& self, Arguments&) { return Value(is_lower(*self.string())); }},
      {"isalpha", [](Runtime&, const Value& self,
                     Arguments&) { return Value(is_all(*self.string(), "alpha")); }},
      {"isalnum", [](Runtime&, const Value& self,
                     Arguments&) { return Value(is_all(*self.string(), "alnum")); }},
      {"isdigit", [](Runtime&, const Value& self,
                     Arguments&) { return Value(is_all(*self.string(), "digit")); }},
      {"isspace", [](Runtime&, const Value& self,
                     Arguments&) { return Value(is_all(*self.string(), "space")); }},
  };
  return all;
}

}  // namespace kv::jinja::methods
