#include "evaluate/range_queries.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "evaluate/index.h"
#include "evaluate/range_rows.h"
#include "evaluate/range_values.h"
#include "numeric/bulk.h"

namespace kv {
namespace {

using range_rows::kPanel;
using range_rows::padded;

/// Queries of one head that are worked on at a time: their scores stay in the L2 cache.
constexpr int64_t kRowsPerTask = 8;

/// rows [tokens, dim] -> [dim, tokens] in panels.
std::vector<float> key_panels(const std::vector<float>& rows, int64_t dim) {
  const auto tokens = static_cast<int64_t>(rows.size()) / dim;
  std::vector<float> out(index(dim * padded(tokens)));
  for (int64_t t = 0; t < tokens; ++t) {
    float* panel = out.data() + t / kPanel * dim * kPanel + t % kPanel;
    for (int64_t c = 0; c < dim; ++c) panel[c * kPanel] = rows[index(t * dim + c)];
  }
  return out;
}

/// rows [tokens, dim] in panels.
std::vector<float> value_panels(const std::vector<float>& rows, int64_t dim) {
  const auto tokens = static_cast<int64_t>(rows.size()) / dim;
  std::vector<float> out(index(tokens * padded(dim)));
  for (int64_t first = 0; first < dim; first += kPanel) {
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(rows.data() + t * dim + first, std::min(kPanel, dim - first),
                  out.data() + first * tokens + t * kPanel);
    }
  }
  return out;
}

/// Stored less original.
std::vector<float> rounding_error(const std::vector<float>& x, int64_t dim,
                                  const RangeLayout& layout, float scale, Rounding rounding) {
  std::vector<float> error(x.size());
  std::vector<uint8_t> codes;
  store_and_load(layout, scale, rounding, x.data(), static_cast<int64_t>(x.size()) / dim, dim,
                 error.data(), codes);
  for (size_t i = 0; i < x.size(); ++i) error[i] -= x[i];
  return error;
}

void divide_rows(std::vector<float>& rows, int64_t dim, const std::vector<float>& factors) {
  if (factors.empty()) return;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] /= factors[i / index(dim)];
}

double squared_norm(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

/// Measures some queries of one query head against its KV head.
class QueryBlock {
 public:
  /// positions and first_row: where the queries stand in the sequence and in `out`.
  QueryBlock(const AttentionTap& tap, const HeadKeys& head, std::span<const int64_t> positions,
             int64_t first_row, int64_t q_head, QueryOutputs& out)
      : window_(tap.window),
        soft_cap_(tap.soft_cap),
        head_(head),
        positions_(positions),
        first_row_(first_row),
        q_head_(q_head),
        out_(out),
        visible_(positions.back() + 1),
        width_(padded(visible_)),
        value_width_(padded(head.value_dim)),
        rows_(static_cast<int64_t>(positions.size())),
        scores_(index(rows_ * width_)),
        control_(scores_.size()),
        errors_(scores_.size()),
        damaged_(scores_.size()),
        first_(index(rows_ * value_width_)),
        second_(first_.size()) {}

  /// queries [rows, head_dim], times the softmax scale already.
  void measure(const float* queries) {
    score(queries, head_.keys, scores_);
    if (soft_cap_ > 0) {
      raw_scores_ = scores_;
      for (float& score : scores_) score = capped(score);
    }
    control_ = scores_;
    normalise(control_);
    attend(control_, head_.values, first_);
    const std::vector<float> control_out = first_;
    for (int64_t r = 0; r < rows_; ++r) out_.first_attention[row_and_head(r)] = first_weight(r);
    copy_out(first_, out_.control);
    for (size_t layout = 0; layout < head_.key_errors.size(); ++layout) {
      measure_values(layout, control_out);
      measure_keys(layout, queries);
    }
  }

 private:
  void score(const float* queries, const std::vector<float>& keys, std::vector<float>& out) const {
    range_rows::multiply(queries, head_.head_dim, keys.data(), head_.head_dim * kPanel, out.data(),
                         width_, rows_, head_.head_dim, width_);
  }
  double first_weight(int64_t r) const { return control_[index(r * width_)]; }
  float capped(float score) const { return soft_cap_ * std::tanh(score / soft_cap_); }

  /// Keys before a query's window count nothing.
  void normalise(std::vector<float>& scores) const {
    for (int64_t r = 0; r < rows_; ++r) {
      float* row = scores.data() + r * width_;
      const int64_t end = positions_[index(r)] + 1;
      const int64_t begin = window_ > 0 ? std::max<int64_t>(0, end - window_) : 0;
      std::fill_n(row, begin, -std::numeric_limits<float>::infinity());
      range_rows::softmax(row, end, width_);
    }
  }

  /// What the keys' errors change in scores that are capped.
  void cap_errors() {
    for (size_t i = 0; i < raw_scores_.size(); ++i)
      errors_[i] = capped(raw_scores_[i] + errors_[i]) - scores_[i];
  }
  void attend(const std::vector<float>& weights, const std::vector<float>& values,
              std::vector<float>& out) const {
    range_rows::multiply(weights.data(), width_, values.data(), head_.tokens * kPanel, out.data(),
                         value_width_, rows_, visible_, value_width_);
  }

  /// V alone: the control's attention over the values' errors.
  void measure_values(size_t layout, const std::vector<float>& control_out) {
    attend(control_, head_.value_errors[layout], first_);
    const double of_first = head_.first_value_error(layout);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t at = r * value_width_;
      const double size = squared_norm(control_out.data() + at, head_.value_dim);
      const double weight = first_weight(r);
      out_.value_error[layout][row_and_head(r)] =
          relative(squared_norm(first_.data() + at, head_.value_dim), size);
      out_.first_value_error[layout][row_and_head(r)] = relative(weight * weight * of_first, size);
    }
    range_rows::add(first_.data(), control_out.data(), first_.data(),
                    static_cast<int64_t>(first_.size()));
    copy_out(first_, damaged_output(layout, kDamageV));
  }

  /// K alone and both: the attention that the keys' errors make of it.
  void measure_keys(size_t layout, const float* queries) {
    score(queries, head_.key_errors[layout], errors_);
    cap_errors();
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t at = r * width_;
      out_.score_variance[layout][row_and_head(r)] = range_rows::weighted_variance(
          control_.data() + at, errors_.data() + at, positions_[index(r)] + 1);
      // One key's error e of weight p: the mean is pe, the variance p(1 - p)e^2.
      const double weight = first_weight(r), error = errors_[index(at)];
      out_.first_score_variance[layout][row_and_head(r)] =
          weight == 0 ? 0 : weight * (1 - weight) * error * error;
    }
    range_rows::add(scores_.data(), errors_.data(), damaged_.data(),
                    static_cast<int64_t>(damaged_.size()));
    normalise(damaged_);
    attend(damaged_, head_.values, first_);
    copy_out(first_, damaged_output(layout, kDamageK));
    attend(damaged_, head_.value_errors[layout], second_);
    range_rows::add(first_.data(), second_.data(), first_.data(),
                    static_cast<int64_t>(first_.size()));
    copy_out(first_, damaged_output(layout, kDamageBoth));
  }

  size_t row_and_head(int64_t r) const {
    return index((first_row_ + r) * (out_.width / head_.value_dim) + q_head_);
  }
  std::vector<float>& damaged_output(size_t layout, Damage damage) {
    return out_.damaged[layout * kNumDamages + damage];
  }
  void copy_out(const std::vector<float>& rows, std::vector<float>& out) const {
    for (int64_t r = 0; r < rows_; ++r) {
      std::copy_n(rows.data() + r * value_width_, head_.value_dim,
                  out.data() + (first_row_ + r) * out_.width + q_head_ * head_.value_dim);
    }
  }

  int64_t window_;  // 0 = none
  float soft_cap_;  // likewise
  const HeadKeys& head_;
  std::span<const int64_t> positions_;
  int64_t first_row_, q_head_;
  QueryOutputs& out_;
  int64_t visible_, width_, value_width_, rows_;
  std::vector<float> scores_, control_, errors_, damaged_;  // [rows, width]
  std::vector<float> raw_scores_;                           // likewise, where there is a cap
  std::vector<float> first_, second_;                       // [rows, value_width]
};

/// The sampled queries of one head, times the softmax scale: [queries, head_dim].
std::vector<float> queries_of(const AttentionTap& tap, std::span<const int64_t> positions,
                              int64_t q_head) {
  std::vector<float> out(positions.size() * index(tap.head_dim));
  for (size_t r = 0; r < positions.size(); ++r) {
    const int64_t row = (positions[r] - tap.first_position) * tap.num_q_heads + q_head;
    float* query = out.data() + r * index(tap.head_dim);
    bf16_decode(tap.q + row * tap.head_dim, query, index(tap.head_dim));
    for (int64_t c = 0; c < tap.head_dim; ++c) query[c] *= tap.softmax_scale;
  }
  return out;
}

}  // namespace

HeadKeys::HeadKeys(const std::vector<float>& k, const std::vector<float>& v, int64_t dim,
                   int64_t v_dim, const std::vector<RangeLayout>& layouts,
                   const std::vector<float>& k_scales, const std::vector<float>& v_scales,
                   Rounding rounding, const std::vector<float>& key_factors)
    : tokens(static_cast<int64_t>(k.size()) / dim),
      head_dim(dim),
      value_dim(v_dim),
      key_errors(layouts.size()),
      value_errors(layouts.size()) {
  const auto tasks = static_cast<int64_t>(2 * (layouts.size() + 1));
#pragma omp parallel for schedule(dynamic) if (tokens > 64)
  for (int64_t task = 0; task < tasks; ++task) {
    const bool is_key = task % 2 == 0;
    const size_t l = index(task / 2);
    const bool is_original = l == layouts.size();
    std::vector<float>& out =
        is_original ? (is_key ? keys : values) : (is_key ? key_errors : value_errors)[l];
    const std::vector<float>& x = is_key ? k : v;
    const int64_t width = is_key ? dim : v_dim;
    std::vector<float> rows =
        is_original
            ? x
            : rounding_error(x, width, layouts[l], (is_key ? k_scales : v_scales)[l], rounding);
    if (is_key) divide_rows(rows, dim, key_factors);
    out = is_key ? key_panels(rows, dim) : value_panels(rows, v_dim);
  }
}

QueryOutputs::QueryOutputs(int64_t num_rows, int64_t num_q_heads, int64_t value_dim,
                           size_t num_layouts)
    : rows(num_rows),
      width(num_q_heads * value_dim),
      control(index(rows * width)),
      damaged(num_layouts * kNumDamages, std::vector<float>(index(rows * width))),
      score_variance(num_layouts, std::vector<double>(index(rows * num_q_heads))),
      value_error(score_variance),
      first_score_variance(score_variance),
      first_value_error(score_variance),
      first_attention(index(rows * num_q_heads)) {}

double HeadKeys::first_value_error(size_t layout) const {
  double sum = 0;
  for (int64_t c = 0; c < value_dim; ++c) {
    const double x = value_errors[layout][index(c / kPanel * kPanel * tokens + c % kPanel)];
    sum += x * x;
  }
  return sum;
}

double relative(double numerator, double denominator) {
  return numerator == 0 ? 0 : numerator / denominator;
}

void measure_group(const AttentionTap& tap, const HeadKeys& head,
                   const std::vector<int64_t>& positions, int64_t first_q_head, QueryOutputs& out) {
  const int64_t group = tap.num_q_heads / tap.num_kv_heads;
  const auto rows = static_cast<int64_t>(positions.size());
  const int64_t blocks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  // Late queries see the most keys: they start first, so that no thread is left with them.
#pragma omp parallel for schedule(dynamic) if (group * blocks > 1 && head.tokens > 64)
  for (int64_t task = 0; task < group * blocks; ++task) {
    const int64_t q_head = first_q_head + task % group;
    const int64_t first = (blocks - 1 - task / group) * kRowsPerTask;
    const std::span<const int64_t> mine =
        std::span(positions).subspan(index(first), index(std::min(kRowsPerTask, rows - first)));
    const std::vector<float> queries = queries_of(tap, mine, q_head);
    QueryBlock(tap, head, mine, first, q_head, out).measure(queries.data());
  }
}

}  // namespace kv
