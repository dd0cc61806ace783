#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "evaluate/range_health.h"
#include "model/tap.h"

namespace kv {

// Which of K and V a layout rounds in one measurement of the damage.
enum Damage : size_t { kDamageK, kDamageV, kDamageBoth, kNumDamages };

/// Keys and values of one KV head with what every layout changes in them, in panels
/// (range_rows.h).
struct HeadKeys {
  int64_t tokens = 0, head_dim = 0, value_dim = 0;
  std::vector<float> keys;    // [head_dim, tokens], so that many keys make one vector
  std::vector<float> values;  // [tokens, value_dim]
  std::vector<std::vector<float>> key_errors, value_errors;  // per layout, stored less original

  /// |stored less original|^2 of the first token's value.
  double first_value_error(size_t layout) const;

  /// k [num_tokens, dim], v [num_tokens, value_dim]; the scales are per layout. Keys are divided by
  /// `key_factors` [at least num_tokens], when there are any, after they were stored and read.
  HeadKeys(const std::vector<float>& k, const std::vector<float>& v, int64_t dim, int64_t value_dim,
           const std::vector<RangeLayout>& layouts, const std::vector<float>& k_scales,
           const std::vector<float>& v_scales, Rounding rounding,
           const std::vector<float>& key_factors = {});
};

/// What the attention gives for the sampled queries: the control's outputs and every layout's.
struct QueryOutputs {
  int64_t rows = 0, width = 0;              // queries; num_q_heads * value_dim
  std::vector<float> control;               // [rows, width]
  std::vector<std::vector<float>> damaged;  // [layout * kNumDamages + damage][rows, width]
  // [layout][rows, num_q_heads]: the summands of score noise and value noise.
  std::vector<std::vector<double>> score_variance, value_error;
  // The same, if the first token alone were rounded, and the attention that it gets.
  std::vector<std::vector<double>> first_score_variance, first_value_error;
  std::vector<double> first_attention;

  QueryOutputs(int64_t num_rows, int64_t num_q_heads, int64_t value_dim, size_t num_layouts);
};

/// Measures the queries at `positions` (of this call's tokens) of the query heads first_q_head, ...
/// that share the KV head; fills their part of `out`.
void measure_group(const AttentionTap& tap, const HeadKeys& head,
                   const std::vector<int64_t>& positions, int64_t first_q_head, QueryOutputs& out);

/// A squared length, plain and as the norm that follows weighs its channels (1 without one).
struct Damages {
  double plain = 0, normed = 0;
  void add(double x, const float* weights, int64_t channel) {
    plain += x * x;
    const double y = weights == nullptr ? x : x * static_cast<double>(weights[channel]);
    normed += y * y;
  }
};

/// numerator / denominator; 0 / 0 is 0: where nothing was, nothing is lost.
double relative(double numerator, double denominator);

}  // namespace kv
