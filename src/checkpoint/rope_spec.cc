#include "checkpoint/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kv {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Llama 3.1: long waves are slowed by `factor`, short ones kept, those between interpolated.
double stretch_llama3(const RopeSpec& rope, double frequency) {
  const double wave = kTwoPi / frequency;
  const double context = rope.original_max_positions;
  if (wave < context / rope.high_freq_factor) return frequency;
  if (wave > context / rope.low_freq_factor) return frequency / rope.factor;
  const double share =
      (context / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - share) * frequency / rope.factor + share * frequency;
}

// The pair, as a real number, that turns `turns` times within the original context.
double pair_turning(const RopeSpec& rope, int head_dim, double turns) {
  return head_dim * std::log(rope.original_max_positions / (turns * kTwoPi)) /
         (2.0 * std::log(rope.theta));
}

struct Ramp {
  double low;
  double high;
};

Ramp yarn_ramp(const RopeSpec& rope, int head_dim) {
  Ramp ramp{pair_turning(rope, head_dim, rope.beta_fast),
            pair_turning(rope, head_dim, rope.beta_slow)};
  if (rope.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, head_dim - 1.0)};
  if (ramp.low == ramp.high) ramp.high += 0.001;  // as transformers does: no division by zero
  return ramp;
}

double stretch_yarn(const RopeSpec& rope, const Ramp& ramp, int pair, double frequency) {
  const double share = std::clamp((pair - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return frequency / rope.factor * share + frequency * (1.0 - share);
}

double amplitude(const RopeSpec& rope, double mscale) {
  return 0.1 * mscale * std::log(rope.factor) + 1.0;
}

}  // namespace

std::string_view name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kDynamic:
      return "dynamic";
  }
  return "unknown";
}

std::vector<double> inv_freq(const RopeSpec& rope, int head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  const Ramp ramp = rope.type == RopeType::kYarn ? yarn_ramp(rope, head_dim) : Ramp{0.0, 1.0};
  for (int pair = 0; pair < head_dim / 2; ++pair) {
    const auto i = static_cast<size_t>(pair);
    double frequency = std::pow(rope.theta, -2.0 * pair / head_dim);
    if (rope.type == RopeType::kLinear) frequency /= rope.factor;
    if (rope.type == RopeType::kLlama3) frequency = stretch_llama3(rope, frequency);
    if (rope.type == RopeType::kYarn) frequency = stretch_yarn(rope, ramp, pair, frequency);
    if (!rope.freq_divisors.empty()) frequency /= static_cast<double>(rope.freq_divisors[i]);
    frequencies[i] = frequency;
  }
  return frequencies;
}

double attention_factor(const RopeSpec& rope) {
  if (rope.type != RopeType::kYarn) return 1.0;
  if (rope.given_attention_factor) return *rope.given_attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  if (rope.mscale && rope.mscale_all_dim) {
    return amplitude(rope, *rope.mscale) / amplitude(rope, *rope.mscale_all_dim);
  }
  return amplitude(rope, 1.0);
}

double latent_score_factor(const RopeSpec& rope) {
  if (rope.type != RopeType::kYarn || !rope.mscale_all_dim || rope.factor <= 1.0) return 1.0;
  const double one = amplitude(rope, *rope.mscale_all_dim);
  return one * one;
}

}  // namespace kv
