#include "text/jinja_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja_operators.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace kv::jinja {
namespace {

struct Style {
  bool ascii = false;
  bool sorts_keys = false;
  bool breaks_lines = false;
  std::string indent;  // of one level
  std::string comma = ", ", colon = ": ";
};

class Writer {
 public:
  Writer(Runtime& runtime, const Style& style) : runtime_(runtime), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int level) {
    runtime_.take_steps();
    if (const std::string* text = value.string()) {
      write_text(*text);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_int()) {
      out_ += std::to_string(value.integer());
    } else if (value.is_float()) {
      write_float(value.number());
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, level);
    } else if (value.items() && value.items()->kind != Items::Kind::kLazy) {
      write_items(value.items()->values, level);
    } else {
      runtime_.fail("tojson: a {} is no JSON", type_name(value));
    }
  }

  void write_float(double number) {
    if (std::isnan(number)) {
      out_ += "NaN";
    } else if (std::isinf(number)) {
      out_ += number < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += float_text(number);
    }
  }

  void write_text(std::string_view text) {
    runtime_.take_bytes(text.size());
    out_ += '"';
    while (!text.empty()) {
      const CodePoint c = first_code_point(text);
      write_character(c.value);
      text.remove_prefix(c.size);
    }
    out_ += '"';
  }

  void write_character(uint32_t c) {
    constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const size_t at = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[at];
    } else if (c < 0x20 || (style_.ascii && c >= 0x7F && c < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", c);
    } else if (style_.ascii && c >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (c >> 10), 0xDC00 | (c & 0x3FF));
    } else {
      append_utf8(out_, c);
    }
  }

  void break_line(int level) {
    if (!style_.breaks_lines) return;
    runtime_.take_bytes(style_.indent.size() * static_cast<size_t>(level));
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }

  void write_items(const std::vector<Value>& values, int level) {
    out_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += style_.comma;
      break_line(level + 1);
      write(values[i], level + 1);
    }
    if (!values.empty()) break_line(level);
    out_ += ']';
  }

  std::string key_text(const Value& key) {
    if (key.string()) return *key.string();
    if (key.is_none()) return "null";
    if (key.is_bool()) return key.boolean() ? "true" : "false";
    return to_text(runtime_, key);
  }

  void write_dict(const Dict& dict, int level) {
    dict.content_is_read = true;
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members) members.push_back(&member);
    if (style_.sorts_keys) {
      std::stable_sort(members.begin(), members.end(), [&](const auto* a, const auto* b) {
        return is_less(runtime_, a->first, b->first);
      });
    }
    out_ += '{';
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_ += style_.comma;
      break_line(level + 1);
      write_text(key_text(members[i]->first));
      out_ += style_.colon;
      write(members[i]->second, level + 1);
    }
    if (!members.empty()) break_line(level);
    out_ += '}';
  }

  Runtime& runtime_;
  const Style& style_;
  std::string out_;
};

Style read_style(Runtime& runtime, Arguments& arguments) {
  Style style;
  const Value* ascii = arguments.take("ensure_ascii");
  const Value* indent = arguments.take("indent");
  const Value* separators = arguments.take("separators");
  const Value* sorts = arguments.take("sort_keys");
  style.ascii = ascii && is_true(*ascii);
  style.sorts_keys = sorts && is_true(*sorts);
  if (indent && !indent->is_none()) {
    style.breaks_lines = true;
    style.comma = ",";
    if (indent->string()) {
      style.indent = *indent->string();
    } else if (indent->is_int() && indent->integer() <= 1000) {
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(indent->integer(), 0)), ' ');
    } else {
      runtime.fail("tojson: indent: expected a number up to 1000");
    }
  }
  if (separators && !separators->is_none()) {
    const Items* pair = separators->items();
    if (pair == nullptr || pair->values.size() != 2 || !pair->values[0].string() ||
        !pair->values[1].string()) {
      runtime.fail("tojson: separators: expected two strings");
    }
    style.comma = *pair->values[0].string();
    style.colon = *pair->values[1].string();
  }
  return style;
}

}  // namespace

Value to_json(Runtime& runtime, const Value& value, Arguments& arguments) {
  const Style style = read_style(runtime, arguments);
  return Writer(runtime, style).run(value);
}

Value from_json(Runtime& runtime, const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::null:
      return Value();
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) runtime.fail("number {} is too large", json.dump());
      return static_cast<int64_t>(json.get<uint64_t>());
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get<std::string>();
    case Type::array: {
      std::vector<Value> values;
      for (const auto& each : json) values.push_back(from_json(runtime, each));
      return make_list(runtime, std::move(values));
    }
    default: {
      Members members;
      for (const auto& [key, each] : json.items()) {
        members.emplace_back(key, from_json(runtime, each));
      }
      return make_dict(runtime, std::move(members));
    }
  }
}

}  // namespace kv::jinja
