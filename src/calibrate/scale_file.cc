#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/calibration.h"
#include "calibrate/id_ranges.h"
#include "kvscale/error.h"
#include "tensor/atomic_file.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kSchema = 4;
constexpr const char* kFormat = "kvscale-scales";

/// {"k": one, "v": other} of every layer.
template <class Value>
OrderedJson layer_sides(int64_t num_layers, Value value) {
  OrderedJson layers = OrderedJson::array();
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    OrderedJson sides;
    for (const Side side : kSides) sides[std::string(name(side))] = value(layer, side);
    layers.push_back(std::move(sides));
  }
  return layers;
}

/// [layer][side][head] of a list.
OrderedJson head_lists(const Calibration& c, const std::vector<float>& list) {
  return layer_sides(c.num_layers, [&](int64_t layer, Side side) {
    const auto first = list.begin() + static_cast<std::ptrdiff_t>(c.index(layer, side, 0));
    return OrderedJson(std::vector<float>(first, first + c.num_kv_heads));
  });
}

/// [layer][side] of a list.
OrderedJson side_numbers(const Calibration& c, const std::vector<float>& list) {
  return layer_sides(c.num_layers, [&](int64_t layer, Side side) {
    return OrderedJson(list.at(static_cast<size_t>(2 * layer + static_cast<int64_t>(side))));
  });
}

OrderedJson scale_lists(const Calibration& c, bool per_head) {
  const ScaleTable table = c.scales(per_head);
  return layer_sides(c.num_layers, [&](int64_t layer, Side side) {
    const auto heads = table.heads(layer, side);
    return OrderedJson(std::vector<float>(heads.begin(), heads.end()));
  });
}

OrderedJson estimator_json(const Estimator& estimator) {
  OrderedJson params = OrderedJson::object();
  if (estimator.kind == Estimator::Kind::kPercentile) params["percent"] = estimator.percent;
  return {{"name", estimator.name()}, {"params", std::move(params)}};
}

/// Examples by name, as a list: a name may be empty, which no reader should lose.
OrderedJson mix_json(const std::map<std::string, int64_t>& mix, const char* what) {
  OrderedJson out = OrderedJson::array();
  for (const auto& [name, n] : mix) out.push_back({{what, name}, {"examples", n}});
  return out;
}

OrderedJson dataset_json(const CalibrationSource& source) {
  OrderedJson lengths = OrderedJson::array();
  for (const auto& [most, n] : source.length_histogram) {
    lengths.push_back({{"up_to", most}, {"examples", n}});
  }
  return {{"prompts", source.prompts},
          {"sha256", source.prompts_sha256},
          {"examples", source.examples},
          {"tokens", source.tokens},
          {"max_tokens", source.max_tokens},
          {"lengths", std::move(lengths)},
          {"languages", mix_json(source.languages, "language")},
          {"task_mix", mix_json(source.task_mix, "task")},
          {"token_ids", ranges_text(source.token_ids)}};
}

OrderedJson body(const Calibration& c) {
  OrderedJson out;
  out["format"] = kFormat;
  out["schema"] = kSchema;
  out["created_utc"] = c.source.created_utc;
  out["model_sha256"] = c.source.model_sha256;
  out["config_sha256"] = c.source.config_sha256;
  out["tokenizer_sha256"] = c.source.tokenizer_sha256;
  out["chat_template_sha256"] = c.source.chat_template_sha256;
  out["layers"] = c.num_layers;
  out["kv_heads"] = c.num_kv_heads;
  out["head_dim"] = c.source.head_dim;
  out["rope"] = c.source.rope;
  out["k_stage"] = "post_rope";
  out["fp8_format"] = "e4m3fn";
  out["fp8_max"] = 448;
  out["estimator"] = estimator_json(c.estimator);
  out["dataset"] = dataset_json(c.source);
  out["seed"] = c.source.seed ? OrderedJson(*c.source.seed) : OrderedJson(nullptr);
  out["engine"] = {{"name", "kvscale"},
                   {"version", c.source.tool_version},
                   {"attention", c.source.attention},
                   {"machine", c.source.machine}};
  out["warnings"] = c.warnings;
  // Half of one example is none: nothing is known, which is not an amax of 0.
  const bool has_half = c.source.examples >= 2;
  out["convergence"] = {{"examples", c.source.examples / 2},
                        {"amax", has_half ? side_numbers(c, c.half_amax) : OrderedJson(nullptr)}};
  out["amax"] = head_lists(c, c.amax);
  if (c.estimator.needs_values()) {
    out["ranges_per_tensor"] = side_numbers(c, c.tensor_ranges);
    out["ranges_per_head"] = head_lists(c, c.head_ranges);
  }
  out["scales_per_tensor"] = scale_lists(c, false);
  out["scales_per_head"] = scale_lists(c, true);
  return out;
}

/// Fields of the file by name, each checked.
class Reader {
 public:
  Reader(const OrderedJson& json, std::string file) : json_(json), file_(std::move(file)) {}

  template <class T>
  T get(const char* field) const {
    return at<T>(json_, field, field);
  }
  void expect(const char* field, const OrderedJson& expected) const {
    const OrderedJson found = get<OrderedJson>(field);
    if (found != expected) fail(field, expected.dump(), found.dump());
  }

  /// A field of an object that is a field of the file.
  template <class T>
  T of(const char* object, const char* field) const {
    return at<T>(get<OrderedJson>(object), field, fmt::format("{}.{}", object, field));
  }

  /// list[layer].k[head], and list[layer].k where `head` is negative: finite and >= 0.
  float magnitude(const OrderedJson& list, const char* shown, int64_t layer, Side side,
                  int64_t head = -1) const {
    const std::string key(name(side));
    const std::string field =
        fmt::format("{}[{}].{}{}", shown, layer, key, head < 0 ? "" : fmt::format("[{}]", head));
    if (!list.is_array() || layer >= std::ssize(list) || !list[layer].is_object() ||
        !list[layer].contains(key)) {
      fail(field, "a number", "none");
    }
    const OrderedJson* found = &list[layer][key];
    if (head >= 0) {
      if (!found->is_array() || head >= std::ssize(*found)) fail(field, "a number", "none");
      found = &(*found)[head];
    }
    if (!found->is_number()) fail(field, "a number", "none");
    const float value = found->get<float>();
    if (!std::isfinite(value) || value < 0)
      fail(field, "a finite number >= 0", fmt::format("{}", value));
    return value;
  }

  [[noreturn]] void fail(const std::string& field, const std::string& expected,
                         const std::string& found) const {
    throw FormatError(fmt::format("{}: {}: expected {}, found {}", file_, field, expected, found));
  }

 private:
  template <class T>
  T at(const OrderedJson& from, const char* field, const std::string& shown) const {
    if (!from.is_object() || !from.contains(field)) fail(shown, "a value", "none");
    try {
      return from.at(field).get<T>();
    } catch (const OrderedJson::exception&) {
      fail(shown, "another type", from.at(field).dump());
    }
  }

  const OrderedJson& json_;
  std::string file_;
};

int64_t number_within(const Reader& reader, const char* field, int64_t most) {
  const auto found = reader.get<int64_t>(field);
  if (found < 1 || found > most) {
    reader.fail(field, fmt::format("1 to {}", most), fmt::format("{}", found));
  }
  return found;
}

Estimator read_estimator(const Reader& reader) {
  auto text = reader.of<std::string>("estimator", "name");
  const OrderedJson params = reader.of<OrderedJson>("estimator", "params");
  if (params.is_object() && params.contains("percent") && params["percent"].is_number()) {
    text += fmt::format(":{}", params["percent"].get<double>());
  }
  try {
    return Estimator::parse(text);
  } catch (const ValueError&) {
    reader.fail("estimator", "amax, percentile, mse or pow2 with its parameters", text);
  }
}

/// dataset.FIELD: examples by name, of which there are `examples` in all.
std::map<std::string, int64_t> read_mix(const Reader& reader, const char* field, const char* what,
                                        int64_t examples) {
  const std::string shown = fmt::format("dataset.{}", field);
  std::map<std::string, int64_t> out;
  int64_t sum = 0;
  for (const OrderedJson& one : reader.of<OrderedJson>("dataset", field)) {
    if (!one.is_object() || !one.contains(what) || !one[what].is_string() ||
        !one.contains("examples") || !one["examples"].is_number_integer()) {
      reader.fail(shown, fmt::format("{} and examples", what), one.dump());
    }
    const auto n = one["examples"].get<int64_t>();
    if (n < 1 || n > examples) reader.fail(shown, "at least 1 each", one.dump());
    out[one[what].get<std::string>()] = n;
    sum += n;
  }
  if (out.empty() || sum == examples) return out;  // empty: not known
  reader.fail(shown, fmt::format("{} examples", examples), fmt::format("{}", sum));
}

CalibrationSource read_source(const Reader& reader) {
  CalibrationSource source;
  source.created_utc = reader.get<std::string>("created_utc");
  source.model_sha256 = reader.get<std::string>("model_sha256");
  source.config_sha256 = reader.get<std::string>("config_sha256");
  source.tokenizer_sha256 = reader.get<std::string>("tokenizer_sha256");
  source.chat_template_sha256 = reader.get<std::string>("chat_template_sha256");
  source.head_dim = reader.get<int64_t>("head_dim");
  source.rope = reader.get<std::string>("rope");
  source.prompts = reader.of<std::string>("dataset", "prompts");
  source.prompts_sha256 = reader.of<std::string>("dataset", "sha256");
  source.examples = reader.of<int64_t>("dataset", "examples");
  source.tokens = reader.of<int64_t>("dataset", "tokens");
  source.max_tokens = reader.of<int64_t>("dataset", "max_tokens");
  source.tool_version = reader.of<std::string>("engine", "version");
  source.attention = reader.of<std::string>("engine", "attention");
  source.machine = reader.of<std::string>("engine", "machine");
  source.languages = read_mix(reader, "languages", "language", source.examples);
  source.task_mix = read_mix(reader, "task_mix", "task", source.examples);
  const auto seed = reader.get<OrderedJson>("seed");
  if (seed.is_number_unsigned()) {
    source.seed = seed.get<uint64_t>();
  } else if (!seed.is_null()) {
    reader.fail("seed", "a whole number or null", seed.dump());
  }
  const auto ranges = reader.of<std::string>("dataset", "token_ids");
  const auto ids = ids_of_ranges(ranges);
  if (!ids) {
    reader.fail("dataset.token_ids", "ascending ids and ranges, as 3,7-9", ranges.substr(0, 100));
  }
  source.token_ids = *ids;
  int64_t examples = 0;
  for (const OrderedJson& bin : reader.of<OrderedJson>("dataset", "lengths")) {
    if (!bin.is_object() || !bin.contains("up_to") || !bin["up_to"].is_number_integer() ||
        !bin.contains("examples") || !bin["examples"].is_number_integer()) {
      reader.fail("dataset.lengths", "up_to and examples", bin.dump());
    }
    const auto n = bin["examples"].get<int64_t>();
    if (n < 1 || n > source.examples) reader.fail("dataset.lengths", "at least 1 each", bin.dump());
    source.length_histogram[bin["up_to"].get<int64_t>()] = n;
    examples += n;
  }
  if (examples != source.examples) {
    reader.fail("dataset.lengths", fmt::format("{} examples", source.examples),
                fmt::format("{}", examples));
  }
  return source;
}

/// A range that its estimator can have given: at most amax, for `mse` one of the candidates.
void expect_range(const Reader& reader, const Estimator& estimator, float range, float amax,
                  const std::string& field) {
  if (estimator.kind == Estimator::Kind::kPercentile) {
    if (range <= amax && (range > 0 || amax == 0)) return;
    reader.fail(field, fmt::format("above 0 and at most {} (amax)", amax),
                fmt::format("{}", range));
  }
  for (int i = 0; i < kMseCandidates; ++i) {
    if (range == mse_candidate(amax, i)) return;
  }
  reader.fail(field, fmt::format("one of the {} candidates up to {} (amax)", kMseCandidates, amax),
              fmt::format("{}", range));
}

void read_ranges(const Reader& reader, Calibration& c) {
  const auto tensors = reader.get<OrderedJson>("ranges_per_tensor");
  const auto heads = reader.get<OrderedJson>("ranges_per_head");
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    for (const Side side : kSides) {
      c.tensor_ranges.push_back(reader.magnitude(tensors, "ranges_per_tensor", layer, side));
      expect_range(reader, c.estimator, c.tensor_ranges.back(), c.tensor_amax(layer, side),
                   fmt::format("ranges_per_tensor[{}].{}", layer, name(side)));
      for (int64_t head = 0; head < c.num_kv_heads; ++head) {
        c.head_ranges.push_back(reader.magnitude(heads, "ranges_per_head", layer, side, head));
        expect_range(reader, c.estimator, c.head_ranges.back(), c.at(layer, side, head),
                     fmt::format("ranges_per_head[{}].{}[{}]", layer, name(side), head));
      }
    }
  }
}

Calibration parse(const OrderedJson& json, const std::string& file) {
  const Reader reader(json, file);
  reader.expect("format", kFormat);
  if (const OrderedJson schema = reader.get<OrderedJson>("schema"); schema != kSchema) {
    throw FormatError(
        fmt::format("{}: schema: expected {}, found {}: written by another version of kvscale; "
                    "calibrate again, since what it says of its origin is not what is asked now",
                    file, kSchema, schema.dump()));
  }
  reader.expect("k_stage", "post_rope");
  reader.expect("fp8_format", "e4m3fn");
  Calibration c;
  c.source = read_source(reader);
  c.estimator = read_estimator(reader);
  c.num_layers = number_within(reader, "layers", 10000);
  c.num_kv_heads = number_within(reader, "kv_heads", 10000);
  c.warnings = reader.get<std::vector<std::string>>("warnings");
  const auto amax = reader.get<OrderedJson>("amax");
  const auto half = reader.of<OrderedJson>("convergence", "amax");
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    for (const Side side : kSides) {
      const bool is_known = c.source.examples >= 2;
      c.half_amax.push_back(is_known ? reader.magnitude(half, "convergence.amax", layer, side)
                                     : 0.0f);
      for (int64_t head = 0; head < c.num_kv_heads; ++head)
        c.amax.push_back(reader.magnitude(amax, "amax", layer, side, head));
    }
  }
  if (c.estimator.needs_values()) read_ranges(reader, c);
  return c;
}

}  // namespace

void write_calibration(const std::filesystem::path& path, const Calibration& calibration) {
  OrderedJson out = body(calibration);
  out["self_sha256"] = sha256_hex(body(calibration).dump());
  write_file_atomically(path, out.dump(1) + "\n");
}

Calibration read_calibration(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (json.is_discarded())
    throw FormatError(fmt::format("{}: expected JSON, found none", path.string()));
  const Calibration c = parse(json, path.string());
  const Reader reader(json, path.string());
  // Covers every field: a file whose scales were edited by hand is not the file that was evaluated.
  OrderedJson without = json;
  without.erase("self_sha256");
  const std::string expected = sha256_hex(body(c).dump());
  if (without.dump() != body(c).dump())
    reader.fail("scales", "what its ranges give", "something else");
  reader.expect("self_sha256", expected);
  return c;
}

}  // namespace kv
