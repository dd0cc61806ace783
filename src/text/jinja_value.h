#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kv::jinja {

class Runtime;
class Value;
struct Arguments;

using Members = std::vector<std::pair<Value, Value>>;

/// The items of a list, a tuple, or of what Jinja leaves lazy (map, select, ...), which is empty
/// when it is walked a second time. Never changed after it is made: the sandbox that templates are
/// written for forbids it too.
struct Items {
  enum class Kind : uint8_t { kList, kTuple, kLazy };
  Kind kind = Kind::kList;
  std::vector<Value> values;
  int depth = 1;  // of nesting
  mutable bool is_spent = false;
};

/// A dict in the order of insertion.
struct Dict {
  Members members;
  int depth = 1;
  mutable bool content_is_read = false;  // the member "content", or all of them
};

/// namespace(...): the one thing that a template may change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

/// Something to call: a global, a method bound to its object, a macro.
struct Function {
  std::string name;
  std::function<Value(Runtime&, Arguments&)> call;
  int depth = 0;  // of what it is bound to
};

struct Undefined {
  std::string name;  // for messages: what was looked for
};
struct None {};

/// The variable `loop`.
struct Loop {
  std::vector<Value> items;
  int64_t index0 = 0;
  std::vector<Value> last_changed;
};

/// A value of the language, with Python's meaning. Cheap to copy.
class Value {
 public:
  Value() : data_(None{}) {}
  Value(Undefined v) : data_(std::move(v)) {}
  Value(bool v) : data_(v) {}
  Value(int64_t v) : data_(v) {}
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(std::shared_ptr<const Items> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<const Dict> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<Namespace> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<const Function> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<Loop> v) : data_(std::move(v)) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  /// int, float, or bool, which counts as 0 or 1.
  bool is_number() const { return is_int() || is_float() || is_bool(); }
  bool is_string() const { return as<std::shared_ptr<const std::string>>() != nullptr; }
  bool is_tuple() const { return items() != nullptr && items()->kind == Items::Kind::kTuple; }

  /// nullptr: of another kind.
  const std::string* string() const {
    const auto* p = as<std::shared_ptr<const std::string>>();
    return p ? p->get() : nullptr;
  }
  const Items* items() const {
    const auto* p = as<std::shared_ptr<const Items>>();
    return p ? p->get() : nullptr;
  }
  const Dict* dict() const {
    const auto* p = as<std::shared_ptr<const Dict>>();
    return p ? p->get() : nullptr;
  }
  Namespace* name_space() const {
    const auto* p = as<std::shared_ptr<Namespace>>();
    return p ? p->get() : nullptr;
  }
  const Function* function() const {
    const auto* p = as<std::shared_ptr<const Function>>();
    return p ? p->get() : nullptr;
  }
  Loop* loop() const {
    const auto* p = as<std::shared_ptr<Loop>>();
    return p ? p->get() : nullptr;
  }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  bool boolean() const { return std::get<bool>(data_); }
  /// Of an int or a bool.
  int64_t integer() const { return is_bool() ? boolean() : std::get<int64_t>(data_); }
  /// Of any number.
  double number() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
  }
  /// The same object, not only an equal one (`is sameas`).
  bool is_same(const Value& other) const;

 private:
  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const Items>, std::shared_ptr<const Dict>,
               std::shared_ptr<Namespace>, std::shared_ptr<const Function>, std::shared_ptr<Loop>>
      data_;
};

/// The kind in Python's word, for messages: "str", "int", ...
std::string_view type_name(const Value& value);

/// bool(value).
bool is_true(const Value& value);

/// a == b. Numbers compare across kinds, as in Python.
bool is_equal(const Value& a, const Value& b);

/// The member of a dict, or nullptr.
const Value* find_member(const Dict& dict, const Value& key);

/// str(value): what `{{ value }}` prints. Throws through `runtime` for what has no text of its own
/// (macros, namespaces, lazy sequences).
std::string to_text(Runtime& runtime, const Value& value);

/// Appends repr(value).
void append_repr(Runtime& runtime, std::string& out, const Value& value);

/// How deeply lists and dicts are nested in it.
int depth_of(const Value& value);

/// Lists, tuples and dicts of at most Runtime's depth. Throw through `runtime`.
Value make_items(Runtime& runtime, std::vector<Value> values, Items::Kind kind);
inline Value make_list(Runtime& runtime, std::vector<Value> values) {
  return make_items(runtime, std::move(values), Items::Kind::kList);
}
Value make_dict(Runtime& runtime, Members members);

}  // namespace kv::jinja
