#include "engine/sampling.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

/// In (0, 1): its logarithm is finite and not 0.
double open_uniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

}  // namespace

void check_sampling(const Sampling& sampling) {
  const double t = sampling.temperature;
  // Below 0.01 a lead of one nat is 100 times the noise: that is greedy, by a slower way.
  if (!(t == 0 || (t >= 0.01 && t <= 100))) {
    throw ValueError(
        fmt::format("sampling: temperature: expected 0 (greedy) or 0.01 to 100, found {}", t));
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    throw ValueError(fmt::format("sampling: top_p: expected more than 0 and at most 1, found {}",
                                 sampling.top_p));
  }
}

Pick pick_greedy(std::span<const float> logits) {
  if (logits.empty()) return {};
  float best = -std::numeric_limits<float>::infinity(), second = best;
  size_t winner = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) return {};
    if (logits[i] > best) {
      second = best;
      best = logits[i];
      winner = i;
    } else if (logits[i] > second) {
      second = logits[i];
    }
  }
  return {static_cast<int32_t>(winner), static_cast<double>(best) - static_cast<double>(second)};
}

uint64_t sample_stream(uint64_t seed, std::string_view document, std::string_view question,
                       int64_t sample) {
  const uint64_t of_document = mix(mix(seed) ^ fnv1a64(document));
  return SplitMix64::replicate_seed(of_document ^ fnv1a64(question), static_cast<uint64_t>(sample));
}

TokenPicker::TokenPicker(const Sampling& sampling) : sampling_(sampling) {
  check_sampling(sampling);
}

/// Fills weights_; returns their sum.
double TokenPicker::weigh(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  weights_.resize(logits.size());
  double total = 0;
  for (size_t v = 0; v < logits.size(); ++v) {
    weights_[v] = std::exp((static_cast<double>(logits[v]) - largest) / sampling_.temperature);
    total += weights_[v];
  }
  return total;
}

void TokenPicker::cut_to_nucleus(double total) {
  // All tokens below this share together hold less than 1 - top_p, so none of them is wanted.
  const double least = (1 - sampling_.top_p) * total / static_cast<double>(weights_.size());
  std::erase_if(ids_, [&](int32_t v) { return weights_[static_cast<size_t>(v)] < least; });
  std::ranges::stable_sort(ids_, std::ranges::greater(),
                           [&](int32_t v) { return weights_[static_cast<size_t>(v)]; });
  double held = 0;
  size_t count = 0;
  while (count < ids_.size() && held < sampling_.top_p * total) {
    held += weights_[static_cast<size_t>(ids_[count++])];
  }
  ids_.resize(count);
}

Pick TokenPicker::pick(std::span<const float> logits, uint64_t stream, int64_t position) {
  const Pick greedy = pick_greedy(logits);
  if (greedy.token < 0 || sampling_.is_greedy()) return greedy;
  const double total = weigh(logits);
  ids_.resize(logits.size());
  std::iota(ids_.begin(), ids_.end(), 0);
  if (sampling_.top_p < 1) cut_to_nucleus(total);
  const uint64_t key = SplitMix64::replicate_seed(stream, static_cast<uint64_t>(position));
  double first = std::numeric_limits<double>::infinity(), second = first;
  Pick out;
  for (const int32_t v : ids_) {
    const double u = open_uniform(SplitMix64::replicate_seed(key, static_cast<uint64_t>(v)));
    const double arrival = -std::log(u) / weights_[static_cast<size_t>(v)];
    if (arrival < first) {
      second = first;
      first = arrival;
      out.token = v;
    } else {
      second = std::min(second, arrival);
    }
  }
  out.margin = sampling_.temperature * std::log(second / first);
  return out;
}

}  // namespace kv
