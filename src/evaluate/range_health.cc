#include "evaluate/range_health.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "evaluate/index.h"
#include "evaluate/range_queries.h"
#include "evaluate/range_values.h"
#include "kvscale/error.h"
#include "numeric/bulk.h"

namespace kv {
/// Sums over all sequences of one layer.
struct RangeMeter::Layer {
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::array<std::vector<HeadSums>, 2> sides;             // [side][kv head]
  std::array<std::vector<std::vector<float>>, 2> scales;  // [side][kv head][layout]
  std::array<std::vector<std::vector<double>>, 2> noise;  // [side][layout][q head]
  std::vector<std::array<Damages, kNumDamages>> damage;   // [layout]
  int64_t queries = 0;
  // Of first tokens, over the heads; attention and noise also over the queries.
  std::array<double, 2> first_energy = {};
  std::array<std::vector<double>, 2> first_error, first_noise;  // [side][layout]
  double first_attention = 0;
  int64_t sequences = 0;

  bool has_geometry_of(const AttentionTap& tap) const {
    return num_q_heads == tap.num_q_heads && num_kv_heads == tap.num_kv_heads &&
           head_dim == tap.head_dim;
  }
};

namespace {

/// Values of a head on a side: of latents V is the beginning.
int64_t dim_of(const AttentionTap& tap, size_t side) {
  return side == 0 ? tap.head_dim : tap.value_dim();
}

}  // namespace

/// Keys and values of one sequence's layer so far, BF16, [side][kv head][tokens, dim_of(side)].
struct RangeMeter::History {
  int64_t tokens = 0;
  std::array<std::vector<std::vector<uint16_t>>, 2> sides;
  std::vector<float> key_factors;  // of dispersed keys; else empty

  void append(const AttentionTap& tap) {
    for (size_t s = 0; s < 2; ++s) {
      const uint16_t* rows = s == 0 ? tap.k : tap.v;
      sides[s].resize(index(tap.num_kv_heads));
      for (int64_t t = 0; t < tap.num_tokens; ++t) {
        for (std::vector<uint16_t>& head : sides[s]) {
          head.insert(head.end(), rows, rows + dim_of(tap, s));
          rows += tap.head_dim;
        }
      }
    }
    if (tap.key_factors != nullptr) {
      key_factors.insert(key_factors.end(), tap.key_factors, tap.key_factors + tap.num_tokens);
    }
    tokens += tap.num_tokens;
  }

  /// Tokens [first, last) of one head in F32.
  std::vector<float> load(size_t side, int64_t head, int64_t head_dim, int64_t first,
                          int64_t last) const {
    std::vector<float> out(index((last - first) * head_dim));
    bf16_decode(sides[side][index(head)].data() + first * head_dim, out.data(), out.size());
    return out;
  }
};

RangeMeter::RangeMeter(std::vector<RangeLayout> layouts, RangeOptions options)
    : layouts_(std::move(layouts)), options_(options) {
  if (layouts_.empty()) throw ValueError("range meter: expected at least one layout, found none");
  for (size_t i = 0; i < layouts_.size(); ++i) {
    if (!is_fp8(layouts_[i].format)) {
      throw ValueError(fmt::format("range meter: layout \"{}\" stores BF16: nothing is rounded",
                                   layouts_[i].name));
    }
    for (size_t j = 0; j < i; ++j) {
      if (layouts_[j].name != layouts_[i].name) continue;
      throw ValueError(fmt::format("range meter: two layouts \"{}\"", layouts_[i].name));
    }
  }
  if (options_.first_query < 0 || options_.stride < 1) {
    throw ValueError(
        fmt::format("range meter: expected a first query >= 0 and a stride >= 1, found {} and {}",
                    options_.first_query, options_.stride));
  }
}

RangeMeter::~RangeMeter() = default;

namespace {

/// The scale of every layout for one head, 1 for inline ones.
std::vector<float> scales_of(const std::vector<RangeLayout>& layouts, const AttentionTap& tap,
                             Side side, int64_t head) {
  std::vector<float> out;
  for (const RangeLayout& layout : layouts) {
    if (has_inline_scales(layout.format)) {
      out.push_back(1);
      continue;
    }
    const auto heads = layout.scales.heads(tap.layer, tap.latent_values > 0 ? Side::kK : side);
    if (static_cast<int64_t>(heads.size()) != tap.num_kv_heads) {
      throw ValueError(
          fmt::format("range meter: layout \"{}\": expected scales of {} KV heads, "
                      "found {} ({})",
                      layout.name, tap.num_kv_heads, heads.size(), layout.scales.source()));
    }
    out.push_back(heads[index(head)]);
  }
  return out;
}

}  // namespace

RangeMeter::Layer& RangeMeter::layer_of(const AttentionTap& tap) {
  std::unique_ptr<Layer>& slot = layers_[tap.layer];
  if (slot) {
    if (slot->has_geometry_of(tap)) return *slot;
    throw ValueError(fmt::format(
        "range meter: layer {}: expected {} query heads, {} KV heads of {} values as before, found "
        "{}, {}, {}",
        tap.layer, slot->num_q_heads, slot->num_kv_heads, slot->head_dim, tap.num_q_heads,
        tap.num_kv_heads, tap.head_dim));
  }
  auto layer = std::make_unique<Layer>();
  layer->num_q_heads = tap.num_q_heads;
  layer->num_kv_heads = tap.num_kv_heads;
  layer->head_dim = tap.head_dim;
  for (const Side side : kSides) {
    const auto s = static_cast<size_t>(side);
    layer->sides[s].assign(index(tap.num_kv_heads), HeadSums(dim_of(tap, s), layouts_.size()));
    layer->first_error[s].resize(layouts_.size());
    layer->first_noise[s].resize(layouts_.size());
    layer->noise[s].assign(layouts_.size(), std::vector<double>(index(tap.num_q_heads)));
    for (int64_t head = 0; head < tap.num_kv_heads; ++head) {
      layer->scales[s].push_back(scales_of(layouts_, tap, side, head));
    }
  }
  layer->damage.resize(layouts_.size());
  slot = std::move(layer);
  return *slot;
}

RangeMeter::History& RangeMeter::history_of(const AttentionTap& tap) {
  std::unique_ptr<History>& slot = histories_[{tap.sequence, tap.layer}];
  if (!slot) slot = std::make_unique<History>();
  if (slot->tokens == tap.first_position) return *slot;
  throw ValueError(
      fmt::format("range meter: sequence {} layer {}: expected the tokens from position {} on, "
                  "found position {}",
                  tap.sequence, tap.layer, slot->tokens, tap.first_position));
}

void RangeMeter::on_attention(const AttentionTap& tap) {
  if (tap.num_tokens == 0) return;
  if (tap.num_kv_heads < 1 || tap.num_q_heads % tap.num_kv_heads != 0) {
    throw ValueError(
        fmt::format("range meter: expected query heads to be a multiple of KV heads, "
                    "found {} and {}",
                    tap.num_q_heads, tap.num_kv_heads));
  }
  Layer& layer = layer_of(tap);
  History& history = history_of(tap);
  history.append(tap);
  count_values(tap, history, layer);
  if (tap.first_position == 0) count_first(history, layer);
  measure_queries(tap, history, layer);
}

void RangeMeter::count_values(const AttentionTap& tap, const History& history, Layer& layer) const {
  const int64_t tasks = 2 * tap.num_kv_heads;
  // A few tokens are counted sooner than threads are woken.
#pragma omp parallel for schedule(dynamic) if (tap.num_tokens > 16)
  for (int64_t task = 0; task < tasks; ++task) {
    const size_t side = index(task % 2);
    const int64_t head = task / 2;
    const std::vector<float> x =
        history.load(side, head, dim_of(tap, side), tap.first_position, history.tokens);
    layer.sides[side][index(head)].add(x.data(), tap.num_tokens, tap.sequence, tap.first_position,
                                       layouts_, layer.scales[side][index(head)],
                                       options_.rounding);
  }
}

void RangeMeter::count_first(const History& history, Layer& layer) const {
  ++layer.sequences;
  std::vector<uint8_t> codes;
  for (size_t side = 0; side < 2; ++side) {
    for (size_t head = 0; head < layer.sides[side].size(); ++head) {
      const auto dim = std::ssize(layer.sides[side][head].channel_sum);
      const std::vector<float> x = history.load(side, static_cast<int64_t>(head), dim, 0, 1);
      std::vector<float> stored(x.size());
      for (const float value : x) layer.first_energy[side] += static_cast<double>(value) * value;
      for (size_t layout = 0; layout < layouts_.size(); ++layout) {
        store_and_load(layouts_[layout], layer.scales[side][head][layout], options_.rounding,
                       x.data(), 1, dim, stored.data(), codes);
        for (size_t i = 0; i < x.size(); ++i) {
          const double error = static_cast<double>(stored[i]) - x[i];
          layer.first_error[side][layout] += error * error;
        }
      }
    }
  }
}

namespace {

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// The sampled queries of one call.
std::vector<int64_t> sampled_positions(const AttentionTap& tap, const RangeOptions& options) {
  std::vector<int64_t> out;
  const int64_t last = tap.first_position + tap.num_tokens;
  int64_t position = options.first_query;
  if (position < tap.first_position) {
    const int64_t behind = tap.first_position - position;
    position += (behind + options.stride - 1) / options.stride * options.stride;
  }
  for (; position < last; position += options.stride) out.push_back(position);
  return out;
}

/// |damaged - control|^2 / |residual + control|^2 of every query, summed in order.
void add_damage(const AttentionTap& tap, const std::vector<int64_t>& positions,
                const QueryOutputs& out, std::vector<std::array<Damages, kNumDamages>>& sums) {
  const int64_t width = tap.hidden_size;
  std::vector<float> control(index(out.rows * width)), damaged(control.size());
  tap.project(out.control.data(), out.rows, control.data());
  std::vector<Damages> after(index(out.rows));
  for (int64_t r = 0; r < out.rows; ++r) {
    const float* residual = tap.residual + (positions[index(r)] - tap.first_position) * width;
    for (int64_t c = 0; c < width; ++c) {
      const double x = static_cast<double>(residual[c]) + control[index(r * width + c)];
      after[index(r)].add(x, tap.next_norm, c);
    }
  }
  for (size_t variant = 0; variant < out.damaged.size(); ++variant) {
    tap.project(out.damaged[variant].data(), out.rows, damaged.data());
    Damages& sum = sums[variant / kNumDamages][variant % kNumDamages];
    for (int64_t r = 0; r < out.rows; ++r) {
      Damages error;
      for (int64_t c = 0; c < width; ++c) {
        const size_t i = index(r * width + c);
        error.add(static_cast<double>(damaged[i]) - control[i], tap.next_norm, c);
      }
      sum.plain += relative(error.plain, after[index(r)].plain);
      sum.normed += relative(error.normed, after[index(r)].normed);
    }
  }
}

}  // namespace

void RangeMeter::measure_queries(const AttentionTap& tap, const History& history,
                                 Layer& layer) const {
  const std::vector<int64_t> positions = sampled_positions(tap, options_);
  if (positions.empty()) return;
  const int64_t tokens = positions.back() + 1;
  const int64_t group = tap.num_q_heads / tap.num_kv_heads;
  QueryOutputs out(static_cast<int64_t>(positions.size()), tap.num_q_heads, tap.value_dim(),
                   layouts_.size());
  for (int64_t h = 0; h < tap.num_kv_heads; ++h) {
    const HeadKeys head(history.load(0, h, tap.head_dim, 0, tokens),
                        history.load(1, h, tap.value_dim(), 0, tokens), tap.head_dim,
                        tap.value_dim(), layouts_, layer.scales[0][index(h)],
                        layer.scales[1][index(h)], options_.rounding, history.key_factors);
    measure_group(tap, head, positions, h * group, out);
  }
  layer.first_attention += sum_of(out.first_attention);
  for (size_t layout = 0; layout < layouts_.size(); ++layout) {
    layer.first_noise[0][layout] += sum_of(out.first_score_variance[layout]);
    layer.first_noise[1][layout] += sum_of(out.first_value_error[layout]);
    for (size_t i = 0; i < out.score_variance[layout].size(); ++i) {
      const size_t q_head = i % index(tap.num_q_heads);
      layer.noise[0][layout][q_head] += out.score_variance[layout][i];
      layer.noise[1][layout][q_head] += out.value_error[layout][i];
    }
  }
  add_damage(tap, positions, out, layer.damage);
  layer.queries += out.rows;
}

void RangeMeter::end_sequence(int64_t sequence) {
  std::erase_if(histories_, [&](const auto& entry) { return entry.first.first == sequence; });
  for (const auto& [number, layer] : layers_) {
    for (std::vector<HeadSums>& side : layer->sides) {
      for (HeadSums& head : side) head.magnitudes.end_sequence(sequence);
    }
  }
}

namespace {

/// Noise per head from the sums over queries, then the layer's: root mean square, and the worst.
void set_noise(RangeRecord& record, const std::vector<double>& sums, int64_t queries) {
  double total = 0;
  for (const double sum : sums) {
    const double mean = queries > 0 ? sum / static_cast<double>(queries) : 0;
    record.noise_heads.push_back(std::sqrt(mean));
    total += mean;
  }
  record.noise_mean = std::sqrt(total / static_cast<double>(sums.size()));
  record.noise_worst = *std::max_element(record.noise_heads.begin(), record.noise_heads.end());
}

/// SQNR, clipping, flushing and amax of a layer's side and of its heads.
void set_values(RangeRecord& record, const std::vector<HeadSums>& heads, size_t layout) {
  double energy = 0, centred = 0, error = 0, values = 0, clipped = 0, flushed = 0;
  for (const HeadSums& head : heads) {
    const RoundingSums& sums = head.layouts[layout];
    const auto n = static_cast<double>(head.num_values());
    energy += head.energy();
    centred += head.centred_energy();
    error += sums.error_squared;
    values += n;
    clipped += static_cast<double>(sums.clipped);
    flushed += static_cast<double>(sums.flushed);
    record.amax = std::max(record.amax, static_cast<double>(head.amax));
    record.amax_heads.push_back(head.amax);
    record.sqnr_db_heads.push_back(decibels(head.energy(), sums.error_squared));
    record.clip_frac_heads.push_back(static_cast<double>(sums.clipped) / n);
  }
  record.sqnr_db = decibels(energy, error);
  record.centred_sqnr_db = decibels(centred, error);
  record.clip_frac = clipped / values;
  record.zero_frac = flushed / values;
}

/// What is said of the stored values themselves.
void set_stored(RangeRecord& record, const std::vector<HeadSums>& heads) {
  for (const HeadSums& head : heads) {
    const PositionSlope slope = head.magnitudes.slope();
    record.token_p99_p50_heads.push_back(head.magnitudes.spread());
    record.amax_pos_slope_heads.push_back(slope.slope);
    record.amax_pos_p_heads.push_back(slope.p);
    record.channel_share_heads.push_back(head.strongest_channel());
  }
}

}  // namespace

std::vector<RangeRecord> RangeMeter::finish() const {
  std::vector<RangeRecord> out;
  for (const auto& [number, layer] : layers_) {
    std::array<RangeRecord, 2> stored;  // the same under every layout
    for (size_t s = 0; s < 2; ++s) set_stored(stored[s], layer->sides[s]);
    for (size_t layout = 0; layout < layouts_.size(); ++layout) {
      const auto add = [&](const char* side, Damage damage, RangeRecord record) -> RangeRecord& {
        record.layer = number;
        record.side = side;
        record.layout = layouts_[layout].name;
        record.record_id = fmt::format("range/{}/{}/{}", number, side, record.layout);
        record.tokens = layer->sides[0].front().tokens;
        record.queries = layer->queries;
        if (layer->queries > 0) {
          const Damages& sum = layer->damage[layout][damage];
          const auto n = static_cast<double>(layer->queries);
          record.block_damage = std::sqrt(sum.plain / n);
          record.normed_damage = std::sqrt(sum.normed / n);
        }
        return out.emplace_back(std::move(record));
      };
      for (const Side side : kSides) {
        const auto s = static_cast<size_t>(side);
        RangeRecord& record =
            add(name(side).data(), side == Side::kK ? kDamageK : kDamageV, stored[s]);
        set_noise(record, layer->noise[s][layout], layer->queries);
        set_values(record, layer->sides[s], layout);
      }
      add("kv", kDamageBoth, {});
    }
  }
  return out;
}

std::vector<FirstTokenRecord> RangeMeter::first_tokens() const {
  std::vector<FirstTokenRecord> out;
  for (const auto& [number, layer] : layers_) {
    const auto values = static_cast<double>(layer->queries * layer->num_q_heads);
    const auto mean = [&](double sum) { return values > 0 ? sum / values : 0; };
    for (size_t layout = 0; layout < layouts_.size(); ++layout) {
      for (const Side side : kSides) {
        const auto s = static_cast<size_t>(side);
        FirstTokenRecord record;
        record.layer = number;
        record.side = name(side);
        record.layout = layouts_[layout].name;
        record.record_id = fmt::format("first/{}/{}/{}", number, record.side, record.layout);
        const double energy = layer->first_energy[s];
        double others = -energy;
        for (const HeadSums& head : layer->sides[s]) others += head.energy();
        const auto count = static_cast<double>(layer->sides[s].front().tokens - layer->sequences);
        record.norm_ratio = std::sqrt(relative(energy / static_cast<double>(layer->sequences),
                                               others / std::max(count, 1.0)));
        record.sqnr_db = decibels(energy, layer->first_error[s][layout]);
        record.attention = mean(layer->first_attention);
        const double noise = layer->first_noise[s][layout];
        record.noise = std::sqrt(mean(noise));
        record.noise_share = relative(noise, sum_of(layer->noise[s][layout]));
        record.sequences = layer->sequences;
        record.queries = layer->queries;
        out.push_back(std::move(record));
      }
    }
  }
  return out;
}

}  // namespace kv
