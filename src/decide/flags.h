#pragma once

#include <span>
#include <vector>

#include "evaluate/record.h"

namespace kv {

/// What a layer's score noise says about it. Orders the work, decides nothing.
enum class LayerFlag { kHealthy, kDoubtful, kBroken };

/// score_noise_mean in nats, mean over the layer's heads: doubtful from 0.3, broken from 1.0.
LayerFlag flag_layer(double score_noise_mean);

/// The layers to keep in BF16 under one layout: the broken ones, else the doubtful ones; worst
/// first, at most a quarter of all. `ranges`: records of that layout; those of side "k" count.
std::vector<int> bf16_shortlist(std::span<const RangeRecord> ranges, int64_t num_layers);

}  // namespace kv
