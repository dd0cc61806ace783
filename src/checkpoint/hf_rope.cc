#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

RopeType read_type(const JsonFields& rope) {
  const std::string type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
  for (const RopeType known :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn}) {
    if (name(known) == type) return known;
  }
  throw UnsupportedError(fmt::format("{}: {}: expected default, linear, llama3 or yarn, found {:?}",
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
  if (rope.number("partial_rotary_factor").value_or(1.0) != 1.0) {
    throw UnsupportedError(fmt::format("{}: {}: expected 1 (the whole head turns)", rope.file(),
                                       rope.field("partial_rotary_factor")));
  }
  spec.type = read_type(rope);
  // transformers: the config's own key, else the context as declared, stands in for a missing one.
  spec.original_max_positions =
      rope.number("original_max_position_embeddings")
          .value_or(config.number("original_max_position_embeddings").value_or(max_positions));
  if (spec.type == RopeType::kLinear) spec.factor = rope.required_number("factor");
  if (spec.type == RopeType::kYarn) read_yarn(rope, max_positions, spec);
  if (spec.type == RopeType::kLlama3) {
    spec.factor = rope.required_number("factor");
    spec.low_freq_factor = rope.required_number("low_freq_factor");
    spec.high_freq_factor = rope.required_number("high_freq_factor");
  }
}

}  // namespace

RopeSpec read_hf_rope(const JsonFields& config, int max_positions) {
  RopeSpec spec;
  const Json* scaling = config.find("rope_scaling");
  const Json* parameters = config.find("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
    throw FormatError(fmt::format("{}: rope_scaling and rope_parameters differ", config.file()));
  }
  spec.theta = config.number("rope_theta").value_or(10000.0);
  if (scaling == nullptr && parameters == nullptr) return spec;
  const JsonFields rope = config.object(parameters != nullptr ? "rope_parameters" : "rope_scaling");
  const double theta = rope.number("rope_theta").value_or(spec.theta);
  if (config.has("rope_theta") && theta != spec.theta) {
    throw FormatError(fmt::format("{}: {} is {}, but rope_theta is {}", config.file(),
                                  rope.field("rope_theta"), theta, spec.theta));
  }
  spec.theta = theta;
  read_scaling(config, rope, max_positions, spec);
  return spec;
}

}  // namespace kv
