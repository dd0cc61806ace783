#pragma once

#include <cstdint>
#include <vector>

#include "evaluate/range_health.h"
#include "evaluate/token_magnitudes.h"
#include "numeric/bulk.h"

namespace kv {

/// What a layout gives back for one head's values: x [tokens, head_dim], stored likewise.
/// `static_scale` is unused for inline scales. `codes` is scratch.
EncodeCounts store_and_load(const RangeLayout& layout, float static_scale, Rounding rounding,
                            const float* x, int64_t tokens, int64_t head_dim, float* stored,
                            std::vector<uint8_t>& codes);

/// Counts over all values of one head under one layout.
struct RoundingSums {
  double error_squared = 0;
  int64_t clipped = 0, flushed = 0;
};

/// Counts over all values of one KV head of a layer's K or V.
struct HeadSums {
  float amax = 0;
  int64_t tokens = 0;
  std::vector<double> channel_sum, channel_squares;  // [head_dim]
  std::vector<RoundingSums> layouts;
  TokenMagnitudes magnitudes;

  HeadSums(int64_t head_dim, size_t num_layouts);

  /// Adds x [tokens, head_dim], tokens of a sequence from a position on; stored values are those of
  /// store_and_load under each layout.
  void add(const float* x, int64_t num_tokens, int64_t sequence, int64_t first_position,
           const std::vector<RangeLayout>& all, const std::vector<float>& static_scales,
           Rounding rounding);

  double energy() const;
  double strongest_channel() const;  // its share of the energy; 0 without any
  double centred_energy() const;     // each channel's mean taken out
  int64_t num_values() const { return tokens * static_cast<int64_t>(channel_sum.size()); }
};

/// 10 log10(signal / error); infinite without an error.
double decibels(double signal, double error);

}  // namespace kv
