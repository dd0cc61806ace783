#include <algorithm>

#include "text/jinja_operators.h"
#include "text/jinja_text.h"

namespace kv::jinja {
namespace {

void expect_bound(Runtime& runtime, const Value& bound) {
  if (bound.is_none() || bound.is_int() || bound.is_bool()) return;
  runtime.fail("slice: expected int, found {}", type_name(bound));
}

int64_t slice_bound(Runtime& runtime, const Value& bound, int64_t absent, int64_t lowest,
                    int64_t size) {
  expect_bound(runtime, bound);
  if (bound.is_none()) return absent;
  const int64_t at = bound.integer();
  const int64_t from_front = at < 0 ? std::max(at, -size - 1) + size : at;
  return std::clamp(from_front, lowest, lowest + size);
}

}  // namespace

Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
            const Value& step) {
  expect_defined(runtime, value);
  const bool is_sliceable =
      value.string() || (value.items() && value.items()->kind != Items::Kind::kLazy);
  if (!is_sliceable) runtime.fail("a {} cannot be sliced", type_name(value));
  const int64_t size = length(runtime, value);
  expect_bound(runtime, step);
  const int64_t stride = step.is_none() ? 1 : step.integer();
  if (stride == 0) runtime.fail("slice: step is 0");
  // Walking down, bounds lie one lower: -1 is before the first.
  const int64_t lowest = stride < 0 ? -1 : 0;
  const int64_t first = slice_bound(runtime, start, stride < 0 ? size - 1 : 0, lowest, size);
  const int64_t end = slice_bound(runtime, stop, stride < 0 ? -1 : size, lowest, size);
  std::vector<Value> items;
  std::vector<std::string_view> letters;
  if (value.string()) letters = characters(*value.string());
  std::string text;
  runtime.take_steps(size / 16);
  const int64_t pace = std::clamp(stride, -size - 1, size + 1);
  for (int64_t i = first; pace > 0 ? i < end : i > end; i += pace) {
    if (value.items()) {
      items.push_back(value.items()->values[i]);
    } else {
      text += letters[i];
    }
  }
  if (value.items()) return make_items(runtime, std::move(items), value.items()->kind);
  runtime.take_bytes(text.size());
  return text;
}

}  // namespace kv::jinja
