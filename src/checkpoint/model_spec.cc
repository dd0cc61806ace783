#include "checkpoint/model_spec.h"

#include <fmt/core.h>

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

}  // namespace

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
  validate_rope(spec.rope, spec.head_dim, file);
}

}  // namespace kv
