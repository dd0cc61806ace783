#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "calibrate/calibration.h"
#include "kvscale/error.h"
#include "tensor/atomic_file.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kSchema = 2;
constexpr const char* kFormat = "kvscale-scales";

OrderedJson values(const Calibration& c, bool scales, bool per_head) {
  const ScaleTable table = c.scales(per_head);
  OrderedJson layers = OrderedJson::array();
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    OrderedJson sides;
    for (const Side side : kSides) {
      OrderedJson heads = OrderedJson::array();
      for (int64_t head = 0; head < c.num_kv_heads; ++head) {
        heads.push_back(scales ? table.heads(layer, side)[static_cast<size_t>(head)]
                               : c.at(layer, side, head));
      }
      sides[std::string(name(side))] = std::move(heads);
    }
    layers.push_back(std::move(sides));
  }
  return layers;
}

/// "3,7-9": ascending ids, runs by their ends.
std::string ranges_text(const std::vector<int32_t>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", ids[i]);
    if (last > i) out += fmt::format("-{}", ids[last]);
    i = last + 1;
  }
  return out;
}

/// Reads ranges_text(); nothing when the text is not exactly what that writes.
std::optional<std::vector<int32_t>> ids_of_ranges(std::string_view text) {
  constexpr int32_t kMostIds = 1 << 24;
  std::vector<int32_t> out;
  const std::string_view whole = text;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = part.find('-');
    int32_t first = -1, last = -1;
    const std::string_view left = part.substr(0, dash);
    std::from_chars(left.data(), left.data() + left.size(), first);
    last = first;
    if (dash != std::string_view::npos) {
      const std::string_view right = part.substr(dash + 1);
      last = -1;
      std::from_chars(right.data(), right.data() + right.size(), last);
    }
    if (first < 0 || last < first || last >= kMostIds) return std::nullopt;
    for (int32_t id = first; id <= last; ++id) out.push_back(id);
    if (std::ssize(out) > kMostIds) return std::nullopt;
  }
  if (ranges_text(out) != whole || !std::ranges::is_sorted(out)) return std::nullopt;
  return out;
}

OrderedJson body(const Calibration& c) {
  OrderedJson out;
  out["format"] = kFormat;
  out["schema"] = kSchema;
  out["model_sha256"] = c.source.model_sha256;
  out["tokenizer_sha256"] = c.source.tokenizer_sha256;
  out["layers"] = c.num_layers;
  out["kv_heads"] = c.num_kv_heads;
  out["k_stage"] = "post_rope";
  out["fp8_format"] = "e4m3fn";
  out["fp8_max"] = 448;
  out["estimator"] = "amax / 448, rounded up to BF16";
  out["dataset"] = {
      {"prompts", c.source.prompts},       {"sha256", c.source.prompts_sha256},
      {"examples", c.source.examples},     {"tokens", c.source.tokens},
      {"max_tokens", c.source.max_tokens}, {"token_ids", ranges_text(c.source.token_ids)}};
  out["warnings"] = c.warnings;
  out["amax"] = values(c, false, true);
  out["scales_per_tensor"] = values(c, true, false);
  out["scales_per_head"] = values(c, true, true);
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
  template <class T>
  T dataset(const char* field) const {
    return at<T>(get<OrderedJson>("dataset"), field, std::string("dataset.") + field);
  }

  void expect(const char* field, const OrderedJson& expected) const {
    const OrderedJson found = get<OrderedJson>(field);
    if (found != expected) fail(field, expected.dump(), found.dump());
  }

  float amax(int64_t layer, Side side, int64_t head) const {
    const std::string field = fmt::format("amax[{}].{}[{}]", layer, name(side), head);
    if (!json_.contains("amax")) fail("amax", "a value", "none");
    const OrderedJson& layers = json_.at("amax");
    const std::string key(name(side));
    if (!layers.is_array() || layer >= std::ssize(layers) || !layers[layer].is_object() ||
        !layers[layer].contains(key) || !layers[layer][key].is_array() ||
        head >= std::ssize(layers[layer][key]) || !layers[layer][key][head].is_number()) {
      fail(field, "a number", "none");
    }
    const float value = layers[layer][key][head].get<float>();
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

Calibration parse(const OrderedJson& json, const std::string& file) {
  const Reader reader(json, file);
  reader.expect("format", kFormat);
  reader.expect("schema", kSchema);
  reader.expect("k_stage", "post_rope");
  reader.expect("fp8_format", "e4m3fn");
  Calibration c;
  c.source = {reader.get<std::string>("model_sha256"), reader.get<std::string>("tokenizer_sha256"),
              reader.dataset<std::string>("prompts"),  reader.dataset<std::string>("sha256"),
              reader.dataset<int64_t>("examples"),     reader.dataset<int64_t>("tokens"),
              reader.dataset<int64_t>("max_tokens"),   {}};
  const auto ranges = reader.dataset<std::string>("token_ids");
  const auto ids = ids_of_ranges(ranges);
  if (!ids) {
    reader.fail("dataset.token_ids", "ascending ids and ranges, as 3,7-9", ranges.substr(0, 100));
  }
  c.source.token_ids = *ids;
  c.num_layers = reader.get<int64_t>("layers");
  c.num_kv_heads = reader.get<int64_t>("kv_heads");
  if (c.num_layers < 1 || c.num_layers > 10000)
    reader.fail("layers", "1 to 10000", fmt::format("{}", c.num_layers));
  if (c.num_kv_heads < 1 || c.num_kv_heads > 10000) {
    reader.fail("kv_heads", "1 to 10000", fmt::format("{}", c.num_kv_heads));
  }
  c.warnings = reader.get<std::vector<std::string>>("warnings");
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    for (const Side side : kSides) {
      for (int64_t head = 0; head < c.num_kv_heads; ++head)
        c.amax.push_back(reader.amax(layer, side, head));
    }
  }
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
    reader.fail("scales", "what its amax gives", "something else");
  reader.expect("self_sha256", expected);
  return c;
}

}  // namespace kv
