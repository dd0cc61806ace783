#include "decide/localise.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "decide/flags.h"
#include "decide/token_drift.h"
#include "evaluate/predicted_kld.h"

namespace kv {
namespace {

const RangeRecord* find_range(const std::vector<RangeRecord>& ranges, int64_t layer,
                              std::string_view side, std::string_view layout) {
  const auto found = std::ranges::find_if(ranges, [&](const RangeRecord& r) {
    return r.layer == layer && r.side == side && r.layout == layout;
  });
  return found == ranges.end() ? nullptr : &*found;
}

// A noise that is not a number comes from values that are not: worse than any.
double noise_of(const RangeRecord* range) {
  if (range == nullptr) return 0;
  return std::isnan(range->noise_mean) ? std::numeric_limits<double>::infinity()
                                       : range->noise_mean;
}

bool is_offset(const DecideOptions& options, const RangeRecord& range) {
  return !(range.noise_mean < options.offset_noise) ||
         range.centred_sqnr_db < options.offset_centred_db;
}

/// Layers that look like an offset under every layout with scales: keys only, since a constant
/// offset of the values is not divided by a softmax.
void find_offsets(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                  const std::vector<std::string>& layouts, RangeFindings& out) {
  std::vector<std::string> scaled = layouts;
  if (layouts.size() > 1) std::erase(scaled, "fp8_scale1");
  for (const RangeRecord& range : ranges) {
    if (range.side != "k" || range.layout != scaled.front()) continue;
    const bool under_all = std::ranges::all_of(scaled, [&](const std::string& layout) {
      const RangeRecord* one = find_range(ranges, range.layer, "k", layout);
      return one != nullptr && is_offset(options, *one);
    });
    if (!under_all) continue;
    out.offset_layers.push_back(static_cast<int>(range.layer));
    out.reasons.push_back(
        {"OFFSET", range.record_id,
         fmt::format("layer {}: score noise {:.2f} nats (mean over {} heads, {} queries), centred "
                     "SQNR {:.1f} dB under {}, and no layout with scales does better: BF16 for "
                     "this layer",
                     range.layer, range.noise_mean, range.noise_heads.size(), range.queries,
                     range.centred_sqnr_db, range.layout)});
  }
  std::ranges::sort(out.offset_layers);
}

/// The head that gains most by a scale of its own, as SQNR under per-head less per-tensor scales.
void find_head_gap(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                   RangeFindings& out) {
  const RangeRecord* worst = nullptr;
  double worst_gap = 0;
  size_t worst_head = 0;
  for (const RangeRecord& shared : ranges) {
    if (shared.layout != "fp8_tensor") continue;
    const RangeRecord* own = find_range(ranges, shared.layer, shared.side, "fp8_head");
    if (own == nullptr) continue;
    const size_t heads = std::min(shared.sqnr_db_heads.size(), own->sqnr_db_heads.size());
    for (size_t head = 0; head < heads; ++head) {
      const double gap = own->sqnr_db_heads[head] - shared.sqnr_db_heads[head];
      if (gap <= worst_gap) continue;
      worst = &shared;
      worst_gap = gap;
      worst_head = head;
    }
  }
  if (worst == nullptr || worst_gap < options.head_gap_db) return;
  out.has_head_dispersion = true;
  out.reasons.push_back(
      {"HEAD_DISPERSION", worst->record_id,
       fmt::format("layer {} side {}: KV head {} loses {:.1f} dB by sharing the layer's scale "
                   "({} tokens): scales per head",
                   worst->layer, worst->side, worst_head, worst_gap, worst->tokens)});
}

/// A few values beyond the calibrated range are no dispersion: as many as count as drift.
void find_lone_clipping(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                        RangeFindings& out) {
  const auto clips = [&](double share) { return share > options.token_clip_frac; };
  for (const RangeRecord& range : ranges) {
    if (range.layout != "fp8_tensor" || range.clip_frac_heads.size() < 2) continue;
    if (std::ranges::count_if(range.clip_frac_heads, clips) != 1) continue;
    out.has_head_dispersion = true;
    out.reasons.push_back({"HEAD_DISPERSION", range.record_id,
                           fmt::format("layer {} side {}: one KV head alone clips ({:.2g} of the "
                                       "layer's values): scales per head",
                                       range.layer, range.side, range.clip_frac)});
    return;
  }
}

ArmSpec keep_prefix(const ArmSpec& base, const std::vector<int>& order, size_t length) {
  return base.with_bf16_layers(
      {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(length)});
}

}  // namespace

const ArmRecord* find_arm(const std::vector<ArmRecord>& records, const std::string& arm) {
  const auto found = std::ranges::find(records.rbegin(), records.rend(), arm, &ArmRecord::arm);
  return found == records.rend() ? nullptr : &*found;
}

double share_removed(double base, double restored, double floor) {
  if (!std::isfinite(base)) return std::isfinite(restored) ? 1 : 0;
  if (!std::isfinite(restored) || base <= floor) return 0;
  return (base - restored) / (base - floor);
}

bool is_complete(const std::vector<RangeRecord>& ranges, const std::vector<std::string>& layouts,
                 int64_t num_layers) {
  for (const std::string& layout : layouts) {
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      if (find_range(ranges, layer, "k", layout) == nullptr) return false;
      if (find_range(ranges, layer, "v", layout) == nullptr) return false;
    }
  }
  return true;
}

RangeFindings read_ranges(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                          const std::vector<std::string>& layouts) {
  RangeFindings out;
  find_offsets(options, ranges, layouts, out);
  find_head_gap(options, ranges, out);
  if (!out.has_head_dispersion) find_lone_clipping(options, ranges, out);
  for (Reason& reason : find_token_drift(options, ranges)) {
    out.has_token_drift = true;
    out.reasons.push_back(std::move(reason));
  }
  return out;
}

std::vector<int> restore_order(const std::vector<RangeRecord>& ranges, const std::string& layout,
                               int64_t num_layers) {
  struct Rank {
    int layer;
    bool is_doubtful;
    double noise;
  };
  std::vector<Rank> ranks;
  for (int layer = 0; layer < num_layers; ++layer) {
    const double score_noise = noise_of(find_range(ranges, layer, "k", layout));
    const bool is_doubtful = flag_layer(score_noise) != LayerFlag::kHealthy;
    const double value_noise = noise_of(find_range(ranges, layer, "v", layout));
    ranks.push_back({layer, is_doubtful, is_doubtful ? score_noise : value_noise});
  }
  std::ranges::stable_sort(ranks, [](const Rank& a, const Rank& b) {
    return a.is_doubtful != b.is_doubtful ? a.is_doubtful : a.noise > b.noise;
  });
  std::vector<int> order;
  for (const Rank& rank : ranks) order.push_back(rank.layer);
  return order;
}

ArmSpec blamed_sides(const std::vector<RangeRecord>& ranges, const ArmSpec& base,
                     const std::vector<int>& layers) {
  ArmSpec out = base.with_bf16_layers(layers);
  const std::string layout(name(base.layout));
  for (Bf16Side& side : out.bf16) {
    const double score_noise = noise_of(find_range(ranges, side.layer, "k", layout));
    side.k = flag_layer(score_noise) != LayerFlag::kHealthy;
    side.v = !side.k;
  }
  return out;
}

std::vector<LayerType> layer_types(const std::vector<LayerGeometry>& layers) {
  std::vector<LayerType> out;
  std::vector<LayerGeometry> known;
  const auto same = [](const LayerGeometry& a, const LayerGeometry& b) {
    return a.window == b.window && a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim;
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerGeometry& layer = layers[i];
    const auto found =
        std::ranges::find_if(known, [&](const LayerGeometry& one) { return same(one, layer); });
    const auto at = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(layer);
      out.push_back({layer.window > 0 ? fmt::format("with a window of {} tokens", layer.window)
                                      : fmt::format("over the whole context, {} KV heads of {}",
                                                    layer.num_kv_heads, layer.head_dim),
                     {}});
    }
    out[at].layers.push_back(static_cast<int>(i));
  }
  if (out.size() == 1) out.clear();
  return out;
}

double capacity_gain(const std::vector<LayerGeometry>& layers, const ArmSpec& arm, int64_t tokens) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const CacheBytes control = cache_bytes(layers, ArmSpec{}.formats(num_layers), tokens);
  const CacheBytes candidate = cache_bytes(layers, arm.formats(num_layers), tokens);
  return static_cast<double>(control.total_bytes()) / static_cast<double>(candidate.total_bytes());
}

size_t longest_prefix(const DecideOptions& options, const std::vector<LayerGeometry>& layers,
                      const ArmSpec& base, const std::vector<int>& order, int64_t tokens) {
  const auto most =
      static_cast<size_t>(options.bf16_share_max * static_cast<double>(layers.size()));
  size_t length = 0;
  while (length < std::min(most, order.size()) &&
         capacity_gain(layers, keep_prefix(base, order, length + 1), tokens) >=
             options.capacity_gain_min) {
    ++length;
  }
  return length;
}

size_t predicted_prefix(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                        const ArmSpec& base, const std::vector<int>& order, size_t longest) {
  const auto damage = [&](size_t length) {
    return arm_damage(ranges, keep_prefix(base, order, length));
  };
  const double whole = damage(0);
  if (longest == 0 || !std::isfinite(whole)) return 1;
  for (size_t length = 1; length <= longest; ++length) {
    if (share_removed(whole, damage(length), 0) >= options.excess_removed) return length;
  }
  return longest;
}

Ablation ablate(const DecideOptions& options, const std::vector<ArmRecord>& records,
                const ArmSpec& base, const std::vector<int>& order, size_t longest,
                double kld_floor, size_t guess) {
  Ablation out;
  if (longest == 0) return out;
  const auto arm_of = [&](size_t length) { return keep_prefix(base, order, length).text(); };
  const auto ask = [&](size_t first, size_t last) {
    for (size_t length = first; length <= last; ++length) {
      if (find_arm(records, arm_of(length)) == nullptr) out.missing.push_back(arm_of(length));
    }
  };
  const ArmRecord* whole = find_arm(records, arm_of(0));
  size_t too_short = 0;  // the longest known not to suffice
  for (size_t length = 0; whole != nullptr && length <= longest; ++length) {
    const ArmRecord* record = find_arm(records, arm_of(length));
    if (record == nullptr) continue;
    const double share = share_removed(whole->kld, record->kld, kld_floor);
    out.points.push_back(
        {record->arm, record->record_id, static_cast<int>(length), record->kld, share});
    if (length == 0 || share < options.excess_removed) {
      too_short = length;
      continue;
    }
    if (length - too_short > 1) {
      const size_t middle = too_short + (length - too_short) / 2;
      ask(middle, middle);
    } else {
      out.layers.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(length));
    }
    return out;
  }
  if (out.points.size() <= 1) {
    ask(0, 0);
    guess = std::clamp(guess, size_t{1}, longest);
    ask(std::max(guess, size_t{2}) - 1, guess);
  } else if (too_short < longest) {
    ask(too_short + 1, std::min(longest, 2 * too_short + 1));
  }
  return out;
}

}  // namespace kv
