#include "checkpoint/cached_layers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/family.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/scales/kv_geometry.h"
#include "kvscale/error.h"

namespace kv {
namespace {

nlohmann::json read_config_json(const std::filesystem::path& folder) {
  return parse_json(read_text_file(folder / "config.json"), "config.json");
}

int window_of(const JsonFields& config, const std::string& type) {
  if (type == "full_attention") return 0;
  if (type == "sliding_attention") return config.required_integer("sliding_window", kWindowRange);
  throw UnsupportedError(fmt::format(
      "{}: {}: expected full_attention, sliding_attention and linear_attention, found {:?}",
      config.file(), config.field("layer_types"), type));
}

/// A gated delta rule's: a matrix of key x value per value head, and the convolution over queries,
/// keys and values that precedes it.
int64_t state_bytes_of(const JsonFields& config) {
  const auto size = [&](const char* key) -> int64_t {
    return config.required_integer(key, kSizeRange);
  };
  const int64_t values = size("linear_num_value_heads") * size("linear_value_head_dim");
  const int64_t keys = size("linear_num_key_heads") * size("linear_key_head_dim");
  const int64_t past = size("linear_conv_kernel_dim") - 1;
  return values * size("linear_key_head_dim") * 4 + (2 * keys + values) * past * 2;
}

CachedLayer cached_layer(const JsonFields& config, const KvGeometry& geometry, int latent,
                         const std::string& type) {
  CachedLayer out{geometry.num_kv_heads, geometry.head_dim, 0, latent};
  if (type.empty()) return out;
  out.window = window_of(config, type);
  if (out.window > 0) return out;
  out.head_dim = config.integer("global_head_dim", kHeadDimRange).value_or(out.head_dim);
  out.num_kv_heads =
      config.integer("num_global_key_value_heads", kHeadsRange).value_or(out.num_kv_heads);
  return out;
}

void expect_plain_cache(const JsonFields& config, const KvGeometry& geometry) {
  if (config.has("index_topk")) {
    throw UnsupportedError(
        fmt::format("{}: {}: the cache of an indexer beside the latents is not supported",
                    config.file(), config.field("index_topk")));
  }
  expect_within(kNumLayersRange, geometry.num_layers, config.file(), "num_hidden_layers");
  expect_within(kHeadsRange, geometry.num_kv_heads, config.file(), "num_key_value_heads");
  expect_within(kHeadDimRange, geometry.head_dim, config.file(), "head_dim");
  const bool is_open = geometry.layer_types.empty() && config.has("sliding_window") &&
                       config.boolean("use_sliding_window", true);
  if (!is_open &&
      (geometry.layer_types.empty() || std::ssize(geometry.layer_types) == geometry.num_layers)) {
    return;
  }
  throw UnsupportedError(fmt::format("{}: {}: expected one for each of {} layers, found {}",
                                     config.file(), config.field("layer_types"),
                                     geometry.num_layers, geometry.layer_types.size()));
}

}  // namespace

bool is_only_plannable(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "config.json")) return false;
  const nlohmann::json json = read_config_json(folder);
  const JsonFields config(json, "config.json");
  return find_family(config.text("model_type").value_or("")) == nullptr;
}

CachedLayers read_cached_layers(const std::filesystem::path& folder) {
  const nlohmann::json json = read_config_json(folder);
  const JsonFields whole(json, "config.json");
  const JsonFields config = whole.has("text_config") ? whole.object("text_config") : whole;
  const KvGeometry geometry = read_kv_geometry(whole);
  expect_plain_cache(config, geometry);
  CachedLayers out;
  int latent = 0;
  if (geometry.is_mla) {
    latent = config.required_integer("kv_lora_rank", kHeadDimRange);
    config.required_integer("qk_rope_head_dim", kHeadDimRange);
  }
  out.max_positions = config.integer("max_position_embeddings", kPositionsRange).value_or(0);
  for (int layer = 0; layer < geometry.num_layers - geometry.num_kv_shared_layers; ++layer) {
    const std::string type =
        geometry.layer_types.empty() ? "" : geometry.layer_types[static_cast<size_t>(layer)];
    if (type == "linear_attention") {
      ++out.state_layers;
      out.state_bytes += state_bytes_of(config);
    } else {
      out.layers.push_back(cached_layer(config, geometry, latent, type));
    }
  }
  return out;
}

}  // namespace kv
