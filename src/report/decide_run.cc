#include "report/decide_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "decide/decide.h"
#include "decide/set_option.h"
#include "evaluate/shallow_json.h"
#include "kvscale/error.h"
#include "report/json_values.h"
#include "tensor/mapped_file.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr std::string_view kFormat = "kvscale-decide-run";

// ---- writing ----

OrderedJson options_json(const DecideOptions& options) {
  return {{"preset", options.preset},
          {"set", option_assignments(options)},
          {"math", options.math == Math::kFp8 ? "fp8" : "bf16"},
          {"round", options.rounding == Rounding::kTruncate ? "truncate" : "nearest"},
          {"target", options.target},
          {"tasks_from_generators", options.tasks_from_generators},
          {"command", options.commands.repeat},
          {"command_margin", options.commands.margin}};
}

OrderedJson layer_json(const LayerGeometry& layer) {
  OrderedJson out = {
      {"kv_heads", layer.num_kv_heads}, {"head_dim", layer.head_dim}, {"window", layer.window}};
  if (layer.latent_values > 0) out["latent_values"] = layer.latent_values;
  return out;
}

OrderedJson fact_json(const PreflightFact& fact) {
  return {{"rule", fact.rule},
          {"holds", fact.holds},
          {"layout", fact.layout},
          {"record", fact.record},
          {"text", fact.text}};
}

OrderedJson size_json(const BlockSize& size) {
  return {{"block", size.block},
          {"bucket", size.bucket},
          {"look", size.look},
          {"examples", size.examples},
          {"documents", size.documents}};
}

template <class List, class Write>
OrderedJson list_json(const List& items, Write write) {
  OrderedJson out = OrderedJson::array();
  for (const auto& item : items) out.push_back(write(item));
  return out;
}

OrderedJson launch_json(const std::map<std::string, LaunchLines>& launch) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [engine, lines] : launch) {
    out[engine] = {{"flags", lines.flags}, {"notes", lines.notes}};
  }
  return out;
}

OrderedJson ending_json(const VerdictEnding& ending) {
  return {{"notices", ending.notices},
          {"next", list_json(ending.next,
                             [](const NextCommand& next) -> OrderedJson {
                               return {{"command", next.command}, {"text", next.text}};
                             })},
          {"launch", ending.launch ? launch_json(*ending.launch) : OrderedJson(nullptr)},
          {"exit_code", ending.exit_code}};
}

// ---- reading ----

/// A field of the file with the path that leads to it, for messages.
class Field {
 public:
  Field(const OrderedJson& value, std::string where) : value_(value), where_(std::move(where)) {}

  [[noreturn]] void refuse(std::string_view expected) const {
    std::string found = value_.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    if (found.size() > 60) found = found.substr(0, 57) + "...";
    throw FormatError(fmt::format("{}: expected {}, found {}", where_, expected, found));
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw FormatError(fmt::format("{}: {}", where_, what));
  }

  Field at(const char* name) const {
    if (!value_.is_object()) refuse("an object");
    const auto found = value_.find(name);
    if (found != value_.end()) return {*found, fmt::format("{}: \"{}\"", where_, name)};
    throw FormatError(fmt::format("{}: \"{}\" is missing", where_, name));
  }
  std::string text() const {
    if (!value_.is_string()) refuse("a string");
    return value_.get<std::string>();
  }
  bool flag() const {
    if (!value_.is_boolean()) refuse("true or false");
    return value_.get<bool>();
  }
  int64_t count() const {
    if (!value_.is_number_integer() ||
        (value_.is_number_unsigned() && value_.get<uint64_t>() > uint64_t{1} << 62)) {
      refuse("an integer");
    }
    return value_.get<int64_t>();
  }
  double real() const {
    if (value_.is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (!value_.is_number()) refuse("a number");
    return value_.get<double>();
  }
  bool is_null() const { return value_.is_null(); }
  bool has(const char* name) const { return value_.is_object() && value_.contains(name); }

  template <class Read>
  auto list(Read read) const {
    if (!value_.is_array()) refuse("an array");
    std::vector<decltype(read(*this))> out;
    for (size_t i = 0; i < value_.size(); ++i) {
      out.push_back(read(Field{value_[i], fmt::format("{}[{}]", where_, i)}));
    }
    return out;
  }
  std::vector<std::string> texts() const {
    return list([](const Field& one) { return one.text(); });
  }
  template <class Read>
  auto map(Read read) const {
    if (!value_.is_object()) refuse("an object");
    std::map<std::string, decltype(read(*this))> out;
    for (const auto& [key, value] : value_.items()) {
      out.emplace(key, read(Field{value, fmt::format("{}: \"{}\"", where_, key)}));
    }
    return out;
  }
  std::string one_of(std::string_view a, std::string_view b) const {
    const std::string word = text();
    if (word != a && word != b) refuse(fmt::format("\"{}\" or \"{}\"", a, b));
    return word;
  }

 private:
  const OrderedJson& value_;
  std::string where_;
};

DecideOptions options_of(const Field& field) {
  DecideOptions out;
  out.preset = field.at("preset").text();
  for (const std::string& one : field.at("set").texts()) {
    try {
      set_option(out, one);
    } catch (const ValueError& error) {
      field.at("set").fail(error.what());
    }
  }
  out.math = field.at("math").one_of("fp8", "bf16") == "fp8" ? Math::kFp8 : Math::kBf16;
  out.rounding = field.at("round").one_of("truncate", "nearest") == "truncate"
                     ? Rounding::kTruncate
                     : Rounding::kNearestEven;
  out.target = field.at("target").text();
  out.tasks_from_generators = field.at("tasks_from_generators").flag();
  out.commands = {field.at("command").text(), field.at("command_margin").text()};
  return out;
}

LayerGeometry layer_of(const Field& field) {
  return {field.at("kv_heads").count(), field.at("head_dim").count(), field.at("window").count(),
          field.has("latent_values") ? field.at("latent_values").count() : 0};
}

PreflightFact fact_of(const Field& field) {
  return {field.at("rule").text(), field.at("holds").flag(), field.at("layout").text(),
          field.at("record").text(), field.at("text").text()};
}

BlockSize size_of(const Field& field) {
  return {field.at("block").text(), field.at("bucket").text(), field.at("look").count(),
          field.at("examples").count(), field.at("documents").count()};
}

LaunchLines lines_of(const Field& field) {
  return {field.at("flags").text(), field.at("notes").texts()};
}

VerdictEnding ending_of(const Field& field) {
  VerdictEnding out;
  out.notices = field.at("notices").texts();
  out.next = field.at("next").list([](const Field& one) {
    return NextCommand{one.at("command").text(), one.at("text").text()};
  });
  if (!field.at("launch").is_null()) out.launch = field.at("launch").map(lines_of);
  out.exit_code = static_cast<int>(field.at("exit_code").count());
  return out;
}

ModelFacts model_of(const Field& field) {
  return {field.at("name").text(),         field.at("architecture").text(),
          field.at("sha256").text(),       field.at("num_layers").count(),
          field.at("num_q_heads").count(), field.at("num_kv_heads").count(),
          field.at("head_dim").count()};
}

PromptFacts prompts_of(const Field& field) {
  return {field.at("source").text(), field.at("sha256").text(), field.at("documents").count(),
          field.at("tokens").count()};
}

RunFacts run_of(const Field& field) {
  RunFacts out;
  out.kernels = field.at("kernels").texts();
  out.scale_sources = field.at("scale_sources").map([](const Field& one) { return one.text(); });
  out.cache_bytes = field.at("cache_bytes").count();
  out.peak_memory_bytes = field.at("peak_memory_bytes").count();
  out.seconds = field.at("seconds").real();
  out.machine = field.at("machine").text();
  out.version = field.at("version").text();
  out.command = field.at("command").text();
  return out;
}

std::map<std::string, int64_t> examples_of(const Field& root) {
  if (!root.has("examples")) return {};
  return root.at("examples").map([](const Field& one) { return one.count(); });
}

}  // namespace

std::map<std::string, int64_t> count_examples(const Records& records) {
  std::map<std::string, int64_t> out;
  for (const ExampleRecord& one : records.examples) ++out[one.block];
  return out;
}

VerdictEnding ending_between(const Verdict& own, const Verdict& ended) {
  const auto behind = [](const auto& before, const auto& after) {
    const size_t kept = std::min(before.size(), after.size());
    return std::decay_t<decltype(after)>(after.begin() + static_cast<std::ptrdiff_t>(kept),
                                         after.end());
  };
  VerdictEnding out;
  out.notices = behind(own.notices, ended.notices);
  out.next = behind(own.next, ended.next);
  const auto same_lines = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.flags == b.second.flags &&
           a.second.notes == b.second.notes;
  };
  if (!std::ranges::equal(own.launch, ended.launch, same_lines)) out.launch = ended.launch;
  out.exit_code = ended.exit_code;
  return out;
}

void apply(const VerdictEnding& ending, Verdict& verdict) {
  verdict.notices.insert(verdict.notices.end(), ending.notices.begin(), ending.notices.end());
  verdict.next.insert(verdict.next.end(), ending.next.begin(), ending.next.end());
  if (ending.launch) verdict.launch = *ending.launch;
  verdict.exit_code = ending.exit_code;
}

std::string decide_run_json(const DecideRun& run) {
  return json_text({{"format", kFormat},
                    {"schema", kDecideRunSchema},
                    {"options", options_json(run.options)},
                    {"layers", list_json(run.layers, layer_json)},
                    {"facts", list_json(run.facts, fact_json)},
                    {"sizes", list_json(run.sizes, size_json)},
                    {"ending", ending_json(run.ending)},
                    {"model", json_of(run.model)},
                    {"prompts", json_of(run.prompts)},
                    {"run", json_of(run.run)},
                    {"examples", run.examples}}) +
         "\n";
}

DecideRun read_decide_run(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  OrderedJson json;
  try {
    json = parse_shallow<OrderedJson>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const FormatError& error) {
    throw FormatError(fmt::format("{}: {}", path.string(), error.what()));
  } catch (const OrderedJson::exception& error) {
    throw FormatError(fmt::format("{}: not JSON: {}", path.string(), error.what()));
  }
  const Field root(json, path.string());
  if (root.at("format").text() != kFormat) {
    root.at("format").refuse(fmt::format("\"{}\"", kFormat));
  }
  if (root.at("schema").count() != kDecideRunSchema) {
    root.at("schema").refuse(fmt::format("{}", kDecideRunSchema));
  }
  return {options_of(root.at("options")),
          root.at("layers").list(layer_of),
          root.at("facts").list(fact_of),
          root.at("sizes").list(size_of),
          ending_of(root.at("ending")),
          model_of(root.at("model")),
          prompts_of(root.at("prompts")),
          run_of(root.at("run")),
          examples_of(root)};
}

Verdict recompute(const DecideRun& run, const Records& records) {
  const std::map<std::string, int64_t> found = count_examples(records);
  for (const auto& [block, expected] : run.examples) {
    const auto here = found.find(block);
    const int64_t count = here == found.end() ? 0 : here->second;
    if (count == expected) continue;
    throw FormatError(
        fmt::format("records of block {}: expected {} examples, as when the run ended, found {}",
                    block, expected, count));
  }
  Step step = next_step(run.options, {records, run.layers, run.facts, run.sizes});
  if (const Ask* ask = std::get_if<Ask>(&step)) {
    throw FormatError(
        fmt::format("the records end before a verdict: {} would measure {} of {} on block {} next",
                    ask->state, name(ask->kind), fmt::join(ask->arms, ", "), ask->block));
  }
  Verdict verdict = std::get<Verdict>(std::move(step));
  apply(run.ending, verdict);
  return verdict;
}

}  // namespace kv
