#include "checkpoint/model_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "kvscale/error.h"

namespace kv {
namespace {

[[noreturn]] void fail(std::string_view file, std::string_view field, const std::string& expected,
                       const std::string& found) {
  throw FormatError(fmt::format("{}: {}: expected {}, found {}", file, field, expected, found));
}

void expect_token(std::string_view file, std::string_view field, int32_t id, int vocab_size) {
  if (id >= 0 && id < vocab_size) return;
  fail(file, field, fmt::format("a token id below vocab_size = {}", vocab_size),
       fmt::format("{}", id));
}

void expect_positive(std::string_view file, std::string_view field, double value) {
  if (value > 0.0 && value < 1e12) return;  // false for NaN too
  fail(file, field, "a number above 0 and below 1e12", fmt::format("{}", value));
}

void validate_rope(const RopeSpec& rope, int head_dim, std::string_view file) {
  expect_positive(file, "rope theta", rope.theta);
  if (rope.theta <= 1.0) fail(file, "rope theta", "more than 1", fmt::format("{}", rope.theta));
  expect_positive(file, "rope factor", rope.factor);
  if (rope.type == RopeType::kLlama3 || rope.type == RopeType::kYarn) {
    expect_positive(file, "rope original_max_position_embeddings", rope.original_max_positions);
  }
  if (rope.type == RopeType::kLlama3) {
    expect_positive(file, "rope low_freq_factor", rope.low_freq_factor);
    if (!(rope.high_freq_factor > rope.low_freq_factor) || rope.high_freq_factor > 1e12) {
      fail(file, "rope high_freq_factor",
           fmt::format("more than low_freq_factor = {}", rope.low_freq_factor),
           fmt::format("{}", rope.high_freq_factor));
    }
  }
  if (rope.type == RopeType::kYarn) {
    expect_positive(file, "rope beta_fast", rope.beta_fast);
    expect_positive(file, "rope beta_slow", rope.beta_slow);
    expect_positive(file, "rope attention_factor", attention_factor(rope));
  }
  if (!rope.freq_divisors.empty() &&
      rope.freq_divisors.size() != static_cast<size_t>(head_dim / 2)) {
    fail(file, "rope_freqs", fmt::format("{} values (head_dim / 2)", head_dim / 2),
         fmt::format("{}", rope.freq_divisors.size()));
  }
  for (const float divisor : rope.freq_divisors) expect_positive(file, "rope_freqs", divisor);
}

void validate_parts(const ModelSpec& spec, std::string_view file) {
  if (!spec.windows.empty() && spec.windows.size() != static_cast<size_t>(spec.num_layers)) {
    fail(file, "windows", fmt::format("one for each of {} layers", spec.num_layers),
         fmt::format("{}", spec.windows.size()));
  }
  if (spec.softmax_scale != 0.0) expect_positive(file, "softmax scale", spec.softmax_scale);
  if (spec.attention_soft_cap != 0.0) {
    expect_positive(file, "attn_logit_softcapping", spec.attention_soft_cap);
  }
  if (spec.logit_soft_cap != 0.0) {
    expect_positive(file, "final_logit_softcapping", spec.logit_soft_cap);
  }
  expect_positive(file, "embedding scale", spec.embedding_scale);
  expect_within(kExpertsRange, spec.num_experts, file, "num_experts");
  if (spec.num_experts == 0) return;
  expect_within({1, spec.num_experts}, spec.experts_per_token, file, "num_experts_per_tok");
  expect_positive(file, "routed_scaling_factor", spec.experts_scale);
}

}  // namespace

double ModelSpec::score_scale() const {
  return softmax_scale != 0.0 ? softmax_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

std::string other_parts_text(const ModelSpec& spec) {
  const ModelSpec plain;
  std::string out;
  const auto add = [&](const char* what, auto value, auto absent) {
    if (value != absent) out += fmt::format(" {} {}", what, value);
  };
  if (spec.window_rope) {
    out += fmt::format(" window rope {} {} {}", spec.window_rope->theta,
                       name(spec.window_rope->type), spec.window_rope->factor);
  }
  if (!spec.windows.empty()) out += fmt::format(" windows {}", fmt::join(spec.windows, ","));
  add("softmax", spec.softmax_scale, plain.softmax_scale);
  add("cap", spec.attention_soft_cap, plain.attention_soft_cap);
  add("logit cap", spec.logit_soft_cap, plain.logit_soft_cap);
  add("embedding", spec.embedding_scale, plain.embedding_scale);
  add("activation", static_cast<int>(spec.activation), static_cast<int>(plain.activation));
  add("qk norm", spec.has_qk_norm, plain.has_qk_norm);
  add("post norms", spec.has_post_norms, plain.has_post_norms);
  add("experts", spec.num_experts, plain.num_experts);
  add("of them", spec.experts_per_token, plain.experts_per_token);
  add("renormalized", spec.renormalizes_experts, plain.renormalizes_experts);
  add("experts times", spec.experts_scale, plain.experts_scale);
  add("groups", spec.expert_groups, plain.expert_groups);
  add("of groups", spec.groups_per_token, plain.groups_per_token);
  add("dense layers", spec.dense_layers, plain.dense_layers);
  add("dense", spec.dense_intermediate_size, plain.dense_intermediate_size);
  add("shared", spec.shared_intermediate_size, plain.shared_intermediate_size);
  if (spec.latent) {
    const LatentSpec& latent = *spec.latent;
    out += fmt::format(" latent {} {} {} {} {}", latent.q_rank, latent.kv_rank, latent.nope_dim,
                       latent.rope_dim, latent.value_dim);
  }
  return out;
}

int expect_within(const IntRange& range, int64_t value, std::string_view file,
                  std::string_view field) {
  if (value >= range.least && value <= range.most) return static_cast<int>(value);
  fail(file, field, fmt::format("{} to {}", range.least, range.most), fmt::format("{}", value));
}

void validate(const ModelSpec& spec, std::string_view file) {
  expect_within(kNumLayersRange, spec.num_layers, file, "num_layers");
  expect_within(kSizeRange, spec.hidden_size, file, "hidden_size");
  expect_within(kSizeRange, spec.intermediate_size, file, "intermediate_size");
  expect_within(kHeadsRange, spec.num_q_heads, file, "num_q_heads");
  expect_within(kHeadsRange, spec.num_kv_heads, file, "num_kv_heads");
  expect_within(kHeadDimRange, spec.head_dim, file, "head_dim");
  expect_within(kVocabRange, spec.vocab_size, file, "vocab_size");
  expect_within(kPositionsRange, spec.max_positions, file, "max_positions");
  if (spec.num_q_heads % spec.num_kv_heads != 0) {
    fail(file, "num_q_heads", fmt::format("a multiple of num_kv_heads = {}", spec.num_kv_heads),
         fmt::format("{}", spec.num_q_heads));
  }
  if (spec.head_dim % 2 != 0) {
    fail(file, "head_dim", "an even number (RoPE turns pairs)", fmt::format("{}", spec.head_dim));
  }
  if (!(spec.rms_norm_eps > 0.0 && spec.rms_norm_eps < 1.0)) {
    fail(file, "rms_norm_eps", "a number between 0 and 1", fmt::format("{}", spec.rms_norm_eps));
  }
  if (spec.bos_id) expect_token(file, "bos token", *spec.bos_id, spec.vocab_size);
  for (const int32_t id : spec.eos_ids) expect_token(file, "eos token", id, spec.vocab_size);
  validate_rope(spec.rope, spec.rope_dim(), file);
  if (spec.window_rope) validate_rope(*spec.window_rope, spec.head_dim, file);
  validate_parts(spec, file);
}

}  // namespace kv
