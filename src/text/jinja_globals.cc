// The functions that every template may call.
#include <ctime>
#include <map>

#include "text/jinja_operators.h"
#include "text/jinja_render.h"

namespace kv::jinja {
namespace {

using Call = Value (*)(Runtime&, Arguments&);

Value range(Runtime& runtime, Arguments& arguments) {
  const size_t given = arguments.positional.size();
  int64_t start = 0, step = 1;
  if (given > 1) start = arguments.need_integer(runtime, "start");
  const int64_t stop = arguments.need_integer(runtime, "stop");
  if (given > 2) step = arguments.need_integer(runtime, "step");
  if (step == 0) runtime.fail("range: step is 0");
  constexpr size_t kLongest = 100'000;  // as Jinja's sandbox has it
  std::vector<Value> out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (out.size() == kLongest) runtime.fail("range: more than {} numbers", kLongest);
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(runtime, std::move(out));
}

void put(Runtime& runtime, Members& members, const Value& key, const Value& value) {
  runtime.take_steps(1 + std::ssize(members) / 8);
  for (auto& [known, old] : members) {
    if (!is_equal(known, key)) continue;
    old = value;
    return;
  }
  members.emplace_back(key, value);
}

Value make_dict_of(Runtime& runtime, Arguments& arguments) {
  Members members;
  if (!arguments.positional.empty()) {
    const Value from = arguments.need(runtime, "mapping");
    if (from.dict()) {
      members = from.dict()->members;
    } else {
      for (const Value& pair : walk(runtime, from)) {
        const std::vector<Value> both = walk(runtime, pair);
        if (both.size() != 2) runtime.fail("dict: expected pairs, found {} values", both.size());
        put(runtime, members, both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) put(runtime, members, name, value);
  arguments.named.clear();
  return make_dict(runtime, std::move(members));
}

Value raise(Runtime& runtime, Arguments& arguments) {
  const std::string message = to_text(runtime, arguments.need(runtime, "message"));
  runtime.fail("the template refuses the conversation: {}", message);
}

/// The date is always the same one: a run that is taken up again tomorrow must find its prompts.
/// It is the one that Llama 3's templates fall back on.
Value now(Runtime& runtime, Arguments& arguments) {
  const std::string& format = arguments.need_text(runtime, "format");
  std::tm date{};
  date.tm_year = 2024 - 1900;
  date.tm_mon = 6;
  date.tm_mday = 26;
  date.tm_wday = 5;
  date.tm_yday = 207;
  if (format.size() > 100) runtime.fail("strftime_now: format of more than 100 bytes");
  char text[4096];
  return std::string(text, std::strftime(text, sizeof text, format.c_str(), &date));
}

}  // namespace

Value global(Runtime& runtime, const std::string& name) {
  static const std::map<std::string_view, Call> kCalls = {
      {"range", range}, {"dict", make_dict_of}, {"raise_exception", raise}, {"strftime_now", now}};
  const auto found = kCalls.find(name);
  if (found != kCalls.end()) {
    auto function = std::make_shared<Function>();
    function->name = name;
    function->call = found->second;
    return std::shared_ptr<const Function>(std::move(function));
  }
  for (const std::string_view refused : {"cycler", "joiner", "lipsum"}) {
    if (name == refused) runtime.fail("{} is not served", name);
  }
  return Undefined{name};
}

}  // namespace kv::jinja
