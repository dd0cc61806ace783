#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/layout.h"
#include "cache/scale_table.h"
#include "evaluate/record.h"
#include "model/tap.h"
#include "numeric/rounding.h"

namespace kv {

/// A layout whose rounding is tried out on the side.
struct RangeLayout {
  std::string name;  // goes into the records: "fp8_scale1", "fp8_tensor", "fp8_head", ...
  Format format = Format::kE4m3PerTensor;
  ScaleTable scales;          // unused for inline scales
  int64_t latent_values = 0;  // of kE4m3PerTokenTile: values of a vector that are codes
};

struct RangeOptions {
  int64_t first_query = 64;  // positions first_query, first_query + stride, ... are queries
  int64_t stride = 16;
  Rounding rounding = Rounding::kNearestEven;  // of the write
};

/// Measures on a pass of the control what every layout would do to the keys and values
/// (score noise, value noise, block damage, clipping, flushing, SQNR), without running any of them.
///
/// Definitions, for layer, KV head and layout, x the value that BF16 storage keeps, x^ what the
/// layout gives back, p_ts the control's attention of query t (at the sampled positions) to key s:
///
///   score noise   e_ts = q_t . (k^_s - k_s) * softmax_scale;
///                 sqrt(mean_t sum_s p_ts (e_ts - sum_s p_ts e_ts)^2), nats, per query head
///   value noise   sqrt(mean_t |sum_s p_ts (v^_s - v_s)|^2 / |sum_s p_ts v_s|^2), per query head
///   block damage  sqrt(mean_t |o^_t - o_t|^2 / |r_t + o_t|^2), o the block's output projection, r
///                 the residual: K and V rounded together, K alone, V alone
///   normed damage the same, each channel of both times the weight of the norm that follows (1
///                 where the tap names none): what the block's error is to those that read it
///   sqnr_db       10 log10(sum x^2 / sum (x^ - x)^2); centred: each channel's mean over all
///                 tokens is taken out of the signal first
///   first token   attention p_t0 that it gets; noise of it alone: p_t0 (1 - p_t0) e_t0^2 and
///   p_t0^2
///                 |v^_0 - v_0|^2 in the place of the sums above
///   clip_frac     share of values with |x| / scale > 448; zero_frac: with x != 0 and code 0
///
/// Static scales divide; inline ones are vLLM's: scale = max(absmax / 448, 1e-6), x times 1/scale.
/// A result does not depend on how the prompt is cut into chunks. Work is spread over OpenMP's
/// threads. Keeps K and V of unfinished sequences as BF16.
/// Keys before a layer's window count as not attended; with a soft cap e_ts is the difference of
/// capped scores.
class RangeMeter : public AttentionObserver {
 public:
  /// Throws ValueError: no layouts, BF16 among them, two with one name, first_query < 0,
  /// stride < 1.
  RangeMeter(std::vector<RangeLayout> layouts, RangeOptions options);
  ~RangeMeter() override;

  /// Throws ValueError when the tokens do not follow the sequence's earlier ones of that layer,
  /// when the scales lack the layer or its heads, or when a layer's geometry changes.
  void on_attention(const AttentionTap& tap) override;

  /// Forgets a sequence's keys and values; what was measured stays. Its number may be used again.
  void end_sequence(int64_t sequence);

  /// For every layer and layout a record of side "k" (noise = score noise, damage of K alone), "v"
  /// (value noise, V alone) and "kv" (damage of both). Noise and damage are 0 where no query was
  /// sampled (queries = 0). record_id = "range/LAYER/SIDE/LAYOUT".
  std::vector<RangeRecord> finish() const;

  /// The first token of the sequences apart: for every layer and layout a record of side "k" and
  /// one of "v". record_id = "first/LAYER/SIDE/LAYOUT".
  std::vector<FirstTokenRecord> first_tokens() const;

 private:
  struct Layer;
  struct History;

  Layer& layer_of(const AttentionTap& tap);
  History& history_of(const AttentionTap& tap);
  void count_values(const AttentionTap& tap, const History& history, Layer& layer) const;
  void measure_queries(const AttentionTap& tap, const History& history, Layer& layer) const;
  void count_first(const History& history, Layer& layer) const;

  std::vector<RangeLayout> layouts_;
  RangeOptions options_;
  std::map<int64_t, std::unique_ptr<Layer>> layers_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<History>> histories_;  // sequence, layer
};

}  // namespace kv
