#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace kv::jinja {

/// What one rendering may use, so that no template hangs the program or fills its memory. Real
/// templates stay below a hundredth of these.
struct Limits {
  int64_t steps = 5'000'000;        // expressions and statements; items of built sequences
  int64_t output_bytes = 32 << 20;  // of the text
  int64_t built_bytes = 128 << 20;  // of all strings on the way there
  int depth = 300;                  // of expressions within expressions, through macros too
  int value_depth = 100;            // of lists in lists
};

/// Where a rendering stands, and what it has used.
class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}

  int line = 1;

  /// ValueError "chat template: line N: ...".
  [[noreturn]] void fail(std::string_view what) const;

  template <class... T>
  [[noreturn]] void fail(fmt::format_string<T...> format, T&&... args) const {
    fail(std::string_view(fmt::format(format, std::forward<T>(args)...)));
  }

  void take_steps(int64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps) fail_steps();
  }
  /// Before a string of this size is built.
  void take_bytes(size_t n);
  void check_output(size_t bytes) const;
  void check_value_depth(int depth) const;

  /// While it lives, one level deeper.
  class Level {
   public:
    explicit Level(Runtime& runtime);
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  [[noreturn]] void fail_steps() const;

  Limits limits_;
  int64_t steps_ = 0;
  int64_t built_bytes_ = 0;
  int depth_ = 0;
};

/// What a call gives along. Each take_* names the parameter for keywords and messages.
struct Arguments {
  std::string function;  // for messages
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The next positional argument, or the keyword `name`; nullptr: not given.
  const Value* take(std::string_view name);
  const Value* take_named(std::string_view name);
  /// The same, or a failure when it is missing.
  const Value& need(Runtime& runtime, std::string_view name);
  const std::string& need_text(Runtime& runtime, std::string_view name);
  int64_t need_integer(Runtime& runtime, std::string_view name);
  /// Fails when something is left that nothing took.
  void finish(Runtime& runtime) const;

 private:
  size_t next_ = 0;
  std::vector<std::string> taken_;
};

/// The items that `for` walks over, in order; spends lazy ones. Keys of a dict, characters of a
/// string, nothing of an undefined. Fails for what cannot be walked.
std::vector<Value> walk(Runtime& runtime, const Value& value);

}  // namespace kv::jinja
