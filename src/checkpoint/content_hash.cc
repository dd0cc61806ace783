#include "checkpoint/content_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>

#include "text/sha256.h"

namespace kv {
namespace {

std::string optional_text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "none";
}

// Every field that changes what the model computes; {} prints doubles so that they read back equal.
std::string spec_text(const ModelSpec& spec) {
  const RopeSpec& rope = spec.rope;
  return fmt::format(
      "{} layers {} hidden {} intermediate {} heads {} kv {} dim {} vocab {} eps {} tied {} bias "
      "{} "
      "{}\nrope {} theta {} factor {} low {} high {} original {} beta {} {} truncate {} attention "
      "{} "
      "mscale {} {} divisors {}\n",
      spec.architecture, spec.num_layers, spec.hidden_size, spec.intermediate_size,
      spec.num_q_heads, spec.num_kv_heads, spec.head_dim, spec.vocab_size, spec.rms_norm_eps,
      spec.tied_embeddings, spec.has_qkv_bias, spec.has_o_bias, name(rope.type), rope.theta,
      rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions,
      rope.beta_fast, rope.beta_slow, rope.truncate, optional_text(rope.given_attention_factor),
      optional_text(rope.mscale), optional_text(rope.mscale_all_dim),
      fmt::join(rope.freq_divisors, " "));
}

}  // namespace

std::string content_sha256(const ModelSpec& spec, std::span<const RequiredTensor> required,
                           std::span<const StoredTensor* const> tensors) {
  Sha256 sha;
  sha.add_field(spec_text(spec) + other_parts_text(spec));
  for (size_t i = 0; i < required.size(); ++i) {
    sha.add_field(fmt::format("{} {} {}", required[i].name, tensors[i]->encoding->name,
                              shape_text(tensors[i]->shape)));
    sha.add_field(
        {reinterpret_cast<const char*>(tensors[i]->bytes.data()), tensors[i]->bytes.size()});
  }
  return sha.hex();
}

}  // namespace kv
