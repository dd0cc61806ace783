#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evaluate/record.h"

namespace kv {

/// What one scored position says about a candidate, p the control's and q the candidate's
/// distribution over the vocabulary, y the reference token. Natural logarithms.
struct RowMetrics {
  bool finite = true;       // all logits of both rows; otherwise nothing below is set
  double kld = 0;           // sum p (ln p - ln q)
  double nll_ctrl = 0;      // -ln p_y
  double nll_cand = 0;      // -ln q_y
  double dp = 0;            // q_y - p_y
  bool same_top = false;    // same argmax; the lowest index wins ties
  int32_t top = -1;         // the candidate's argmax
  double same_sampled = 0;  // sum p q: the chance that both sample the same token
  double self_sampled = 0;  // sum p p: the chance that two samples of the control agree
  double top2_margin = 0;   // ln p_(1) - ln p_(2) of the control; 0 for a vocabulary of one
};

/// A control's row of logits, prepared once and compared with several candidates. Reusing the
/// object reuses its memory (8 bytes a vocabulary entry).
///
/// Exponentials and sums are FP64, vectorised for the machine. For logits within +-100 and up to
/// 150,000 of them kld and nll agree with exact arithmetic to 2e-9 nats: a sum of n / 2 terms each
/// rounded to 1.1e-16 of at most 200.
class ControlRow {
 public:
  /// Keeps the pointer: `logits` [vocab] must live until the last compare. Throws ShapeError for
  /// an empty vocabulary.
  void prepare(const float* logits, int64_t vocab);

  /// logits [vocab]: a candidate's. Throws ValueError when reference_token lies outside.
  RowMetrics compare(const float* logits, int32_t reference_token) const;

  bool finite() const { return finite_; }
  int32_t top() const { return top_; }
  double top2_margin() const { return top2_margin_; }

  /// ln p of a token. Throws ValueError when it lies outside.
  double logprob(int32_t token) const;

 private:
  void check_token(int32_t token) const;

  const float* logits_ = nullptr;
  std::vector<double> weights_;  // exp(logit - largest)
  double sum_ = 0, log_sum_ = 0;
  float largest_ = 0;
  double self_sampled_ = 0, top2_margin_ = 0;
  int32_t top_ = -1;
  bool finite_ = false;
};

/// ControlRow for a single candidate.
void compare_rows(const float* control, const float* candidate, int64_t vocab,
                  int32_t reference_token, RowMetrics& out);

/// Labels of length buckets, by the number of tokens attended to: the first edge that is not below
/// it ("512"), or "over 2048" beyond the last. Edges are positive and ascending, else ValueError.
class PositionBuckets {
 public:
  explicit PositionBuckets(std::vector<int64_t> edges);
  const std::string& label(int64_t tokens_attended) const;
  const std::vector<int64_t>& edges() const { return edges_; }

 private:
  std::vector<int64_t> edges_;
  std::vector<std::string> labels_;  // one more than edges
};

/// Adds a position to the sums of its document, arm and bucket.
void add_row(LogitRecord& record, const RowMetrics& row);

/// A mean over positions with its standard errors. se_cluster (CR1, the document is the cluster)
/// is NaN for fewer than two documents, se_naive, which takes positions as independent and decides
/// nothing, for fewer than two positions.
struct ClusteredMean {
  double mean = 0, se_cluster = 0, se_naive = 0;
};

/// The quantiles that LogitSummary gives, as shares.
inline constexpr std::array<double, 11> kKldQuantiles = {0.001, 0.01, 0.05, 0.1,  0.25, 0.5,
                                                         0.75,  0.9,  0.95, 0.99, 0.999};

/// Logit metrics over many positions. With n = 0 all numbers are 0.
struct LogitSummary {
  int64_t n = 0, documents = 0, non_finite = 0;
  ClusteredMean kld;           // nats
  ClusteredMean ln_ppl_ratio;  // mean(nll_cand - nll_ctrl), nats
  double nll_ctrl = 0, nll_cand = 0;
  double same_top = 0;  // share
  double dp = 0, rms_dp = 0;
  double same_sampled = 0, self_sampled = 0;
  double kld_min = 0, kld_max = 0;
  std::array<double, kKldQuantiles.size()> kld_quantiles{};
};

/// Sums up the records of one arm (all of them, or those of one bucket). Records of the same
/// document are one cluster.
LogitSummary summarize(std::span<const LogitRecord> records);

}  // namespace kv
