#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/family.h"
#include "checkpoint/hf_config.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

RopeType read_type(const JsonFields& rope) {
  const std::string type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
  for (const RopeType known : {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3,
                               RopeType::kYarn, RopeType::kDynamic}) {
    if (name(known) == type) return known;
  }
  throw UnsupportedError(
      fmt::format("{}: {}: expected default, linear, llama3, yarn or dynamic, found {:?}",
                  rope.file(), rope.field("rope_type"), type));
}

// A number that is 0 or null counts as absent: transformers reads these keys so.
std::optional<double> unless_zero(std::optional<double> value) {
  return value == 0.0 ? std::nullopt : value;
}

void read_yarn(const JsonFields& rope, int max_positions, RopeSpec& spec) {
  spec.factor = rope.number("factor").value_or(max_positions / spec.original_max_positions);
  spec.beta_fast = unless_zero(rope.number("beta_fast")).value_or(spec.beta_fast);
  spec.beta_slow = unless_zero(rope.number("beta_slow")).value_or(spec.beta_slow);
  spec.truncate = rope.boolean("truncate", true);
  spec.given_attention_factor = rope.number("attention_factor");
  spec.mscale = unless_zero(rope.number("mscale"));
  spec.mscale_all_dim = unless_zero(rope.number("mscale_all_dim"));
}

void read_scaling(const JsonFields& config, const JsonFields& rope, int max_positions,
                  RopeSpec& spec) {
  if (rope.has("full_attention") || rope.has("sliding_attention")) {
    throw UnsupportedError(fmt::format("{}: {}: one RoPE per kind of layer is not supported",
                                       rope.file(), rope.field("full_attention")));
  }
  for (const std::string_view key : {"short_factor", "long_factor"}) {
    if (!rope.has(key)) continue;
    throw UnsupportedError(
        fmt::format("{}: {}: longrope is not supported", rope.file(), rope.field(key)));
  }
  if (rope.number("partial_rotary_factor").value_or(1.0) != 1.0) {
    throw UnsupportedError(fmt::format("{}: {}: expected 1 (the whole head turns)", rope.file(),
                                       rope.field("partial_rotary_factor")));
  }
  spec.type = read_type(rope);
  // transformers: the config's own key, else the context as declared, stands in for a missing one.
  spec.original_max_positions =
      rope.number("original_max_position_embeddings")
          .value_or(config.number("original_max_position_embeddings").value_or(max_positions));
  if (spec.type == RopeType::kLinear || spec.type == RopeType::kDynamic)
    spec.factor = rope.required_number("factor");
  if (spec.type == RopeType::kYarn) read_yarn(rope, max_positions, spec);
  if (spec.type == RopeType::kLlama3) {
    spec.factor = rope.required_number("factor");
    spec.low_freq_factor = rope.required_number("low_freq_factor");
    spec.high_freq_factor = rope.required_number("high_freq_factor");
  }
}

// One RoPE for all layers, or for those without a window: rope_theta, and `parameters` where they
// are there.
RopeSpec read_one(const JsonFields& config, const std::optional<JsonFields>& parameters,
                  double default_theta, int max_positions) {
  RopeSpec spec;
  spec.theta = config.number("rope_theta").value_or(default_theta);
  if (!parameters) return spec;
  const JsonFields& rope = *parameters;
  const double theta = rope.number("rope_theta").value_or(spec.theta);
  if (config.has("rope_theta") && theta != spec.theta) {
    throw FormatError(fmt::format("{}: {} is {}, but rope_theta is {}", config.file(),
                                  rope.field("rope_theta"), theta, spec.theta));
  }
  spec.theta = theta;
  read_scaling(config, rope, max_positions, spec);
  return spec;
}

// The RoPE of layers with a window.
RopeSpec read_window_rope(const JsonFields& config, const std::optional<JsonFields>& parameters,
                          int max_positions) {
  RopeSpec spec;
  spec.theta = config.number("rope_local_base_freq").value_or(10000.0);
  if (!parameters || !parameters->has("sliding_attention")) return spec;
  const JsonFields rope = parameters->object("sliding_attention");
  spec.theta = rope.number("rope_theta").value_or(spec.theta);
  read_scaling(config, rope, max_positions, spec);
  return spec;
}

std::optional<JsonFields> read_parameters(const JsonFields& config) {
  const Json* scaling = config.find("rope_scaling");
  const Json* parameters = config.find("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
    throw FormatError(fmt::format("{}: rope_scaling and rope_parameters differ", config.file()));
  }
  if (scaling == nullptr && parameters == nullptr) return std::nullopt;
  return config.object(parameters != nullptr ? "rope_parameters" : "rope_scaling");
}

}  // namespace

RopeSpec read_hf_rope(const JsonFields& config, int max_positions) {
  return read_one(config, read_parameters(config), 10000.0, max_positions);
}

void read_hf_ropes(const JsonFields& config, const Family& family, ModelSpec& spec) {
  const std::optional<JsonFields> parameters = read_parameters(config);
  std::optional<JsonFields> full = parameters;
  const bool is_nested =
      parameters && (parameters->has("full_attention") || parameters->has("sliding_attention"));
  if (family.has_window_rope && is_nested) {
    full = parameters->has("full_attention")
               ? std::optional<JsonFields>(parameters->object("full_attention"))
               : std::nullopt;
  }
  spec.rope = read_one(config, full, family.default_theta, spec.max_positions);
  if (!family.has_window_rope || spec.windows.empty()) return;
  spec.window_rope =
      read_window_rope(config, is_nested ? parameters : std::nullopt, spec.max_positions);
}

}  // namespace kv
