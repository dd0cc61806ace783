#include "decide/token_drift.h"

#include <fmt/core.h>

#include <optional>
#include <span>

#include "stats/holm.h"

namespace kv {
namespace {

/// One KV head of one record.
struct HeadValue {
  const RangeRecord* range;
  size_t head;
  double value;
};

/// Records of the stored values, which are the same under every layout: those of the first one.
std::vector<const RangeRecord*> stored_sides(const std::vector<RangeRecord>& ranges) {
  std::vector<const RangeRecord*> out;
  for (const RangeRecord& range : ranges) {
    const bool is_side = range.side == "k" || range.side == "v";
    if (is_side && range.layout == ranges.front().layout) out.push_back(&range);
  }
  return out;
}

std::vector<HeadValue> heads_of(const std::vector<const RangeRecord*>& sides,
                                std::vector<double> RangeRecord::*values) {
  std::vector<HeadValue> out;
  for (const RangeRecord* side : sides) {
    for (size_t head = 0; head < (side->*values).size(); ++head) {
      out.push_back({side, head, (side->*values)[head]});
    }
  }
  return out;
}

std::optional<HeadValue> largest(std::span<const HeadValue> heads) {
  std::optional<HeadValue> out;
  for (const HeadValue& one : heads) {
    if (!out || one.value > out->value) out = one;
  }
  return out;
}

Reason reason_for(const HeadValue& one, const std::string& text) {
  return {"TOKEN_DRIFT", one.range->record_id,
          fmt::format("layer {} side {} head {}: {} ({} tokens): a scale per token",
                      one.range->layer, one.range->side, one.head, text, one.range->tokens)};
}

std::optional<Reason> clipping(const DecideOptions& options,
                               const std::vector<RangeRecord>& ranges) {
  const RangeRecord* worst = nullptr;
  for (const RangeRecord& range : ranges) {
    if (range.layout != "fp8_tensor" && range.layout != "fp8_head") continue;
    if (!(range.clip_frac > options.token_clip_frac)) continue;
    if (worst == nullptr || range.clip_frac > worst->clip_frac) worst = &range;
  }
  if (worst == nullptr) return std::nullopt;
  return Reason{"TOKEN_DRIFT", worst->record_id,
                fmt::format("layer {} side {}: {:.2g} of {} tokens' values lie beyond the "
                            "calibrated range: a scale per token",
                            worst->layer, worst->side, worst->clip_frac, worst->tokens)};
}

std::optional<Reason> slope(const DecideOptions& options,
                            const std::vector<const RangeRecord*>& sides) {
  const auto heads = heads_of(sides, &RangeRecord::amax_pos_p_heads);
  std::vector<double> p_values;
  for (const HeadValue& one : heads) p_values.push_back(one.value);
  const std::vector<double> adjusted = holm_adjusted(p_values);
  std::optional<size_t> best;
  for (size_t i = 0; i < heads.size(); ++i) {
    const std::vector<double>& slopes = heads[i].range->amax_pos_slope_heads;
    if (heads[i].head >= slopes.size() || !(slopes[heads[i].head] > options.token_slope)) continue;
    if (!(adjusted[i] < options.token_drift_p)) continue;
    if (!best || adjusted[i] < adjusted[*best]) best = i;
  }
  if (!best) return std::nullopt;
  const HeadValue& one = heads[*best];
  return reason_for(one, fmt::format("magnitudes grow with the position, {:+.3f} in log2 per "
                                     "doubling, Holm-adjusted p {:.2g} (below {:.4g})",
                                     one.range->amax_pos_slope_heads[one.head], adjusted[*best],
                                     options.token_drift_p));
}

std::optional<Reason> spread(const DecideOptions& options,
                             const std::vector<const RangeRecord*>& sides) {
  const auto worst = largest(heads_of(sides, &RangeRecord::token_p99_p50_heads));
  if (!worst || !(worst->value >= options.token_spread)) return std::nullopt;
  return reason_for(*worst, fmt::format("the 99th percentile of the magnitudes per token is {:.3g} "
                                        "times the median (at least {:.4g})",
                                        worst->value, options.token_spread));
}

std::optional<Reason> channel(const DecideOptions& options,
                              const std::vector<const RangeRecord*>& sides) {
  std::vector<HeadValue> keys = heads_of(sides, &RangeRecord::channel_share_heads);
  std::erase_if(keys, [](const HeadValue& one) { return one.range->side != "k"; });
  const auto worst = largest(keys);
  if (!worst || !(worst->value > options.channel_share)) return std::nullopt;
  return reason_for(*worst, fmt::format("one channel carries {:.0f} % of the keys' energy (more "
                                        "than {:.4g} %), and each token's largest value is stored "
                                        "exactly",
                                        100 * worst->value, 100 * options.channel_share));
}

}  // namespace

std::vector<Reason> find_token_drift(const DecideOptions& options,
                                     const std::vector<RangeRecord>& ranges) {
  std::vector<Reason> out;
  if (ranges.empty()) return out;
  const std::vector<const RangeRecord*> sides = stored_sides(ranges);
  for (auto& found : {clipping(options, ranges), slope(options, sides), spread(options, sides),
                      channel(options, sides)}) {
    if (found) out.push_back(*found);
  }
  return out;
}

}  // namespace kv
