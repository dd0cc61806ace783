#include "checkpoint/scales/sglang_json.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr IntRange kRankRange{0, 65535};

int number_of_key(const JsonFields& fields, const std::string& key, const IntRange& range) {
  int value = -1;
  const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), value);
  if (error != std::errc() || stop != key.data() + key.size()) {
    throw FormatError(fmt::format("{}: {}: expected a number as the key, found {:?}", fields.file(),
                                  fields.field(""), key.substr(0, 40)));
  }
  return expect_within(range, value, fields.file(), fields.field(key));
}

void read_rank(const JsonFields& layers, const Json& values, int rank, ScaleSet& out) {
  for (const auto& [key, value] : values.items()) {
    const int layer = number_of_key(layers, key, {0, kNumLayersRange.most - 1});
    if (!value.is_number()) layers.fail(key, "a number");
    StoredScale scale;
    scale.layer = layer;
    scale.values = {static_cast<float>(value.get<double>())};
    scale.dtype = "JSON";
    scale.file = layers.file();
    scale.tensor = layers.field(key);
    scale.spelling = "scaling_factor";
    scale.is_shared = true;
    scale.rank = rank;
    for (const ScaleSide side : {ScaleSide::kK, ScaleSide::kV}) {
      scale.side = side;
      out.scales.push_back(scale);
    }
  }
}

}  // namespace

void read_sglang_json(const std::filesystem::path& path, ScaleSet& out) {
  const std::string file = path.filename().string();
  const Json json = parse_json(read_text_file(path), file);
  const JsonFields fields(json, file);
  const JsonFields cache = fields.object("kv_cache");
  const std::string dtype = cache.text("dtype").value_or("");
  if (dtype != "float8_e4m3fn") cache.fail("dtype", "\"float8_e4m3fn\"");
  out.declared.family = ScaleFamily::kSglangJson;
  out.declared.source = file;
  out.declared.has_kv = out.declared.is_fp8 = true;
  out.declared.kv_algorithm = dtype;
  out.declared.method = fields.text("model_type").value_or("");
  if (out.declared.method.empty()) {
    out.notes.emplace_back("model_type is absent: SGLang's schema requires it");
  }
  const JsonFields ranks = cache.object("scaling_factor");
  for (const auto& [key, layers] : cache.find("scaling_factor")->items()) {
    const int rank = number_of_key(ranks, key, kRankRange);
    read_rank(ranks.object(key), layers, rank, out);
  }
  int layers = 0;
  for (const StoredScale& scale : out.scales) layers = std::max(layers, scale.layer + 1);
  if (out.geometry.num_layers == 0) out.geometry.num_layers = layers;
}

std::string sglang_json_text(const std::string& model_type,
                             const std::vector<std::vector<float>>& scales) {
  nlohmann::ordered_json factors = nlohmann::ordered_json::object();
  for (size_t rank = 0; rank < scales.size(); ++rank) {
    nlohmann::ordered_json layers = nlohmann::ordered_json::object();
    for (size_t layer = 0; layer < scales[rank].size(); ++layer) {
      layers[std::to_string(layer)] = scales[rank][layer];
    }
    factors[std::to_string(rank)] = std::move(layers);
  }
  const nlohmann::ordered_json out = {
      {"model_type", model_type},
      {"kv_cache", {{"dtype", "float8_e4m3fn"}, {"scaling_factor", std::move(factors)}}}};
  return out.dump(1) + "\n";
}

}  // namespace kv
