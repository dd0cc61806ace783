#include "evaluate/logit_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "evaluate/logit_rows.h"
#include "kvscale/error.h"
#include "stats/moments.h"

namespace kv {

void ControlRow::prepare(const float* logits, int64_t vocab) {
  if (vocab < 1) {
    throw ShapeError(fmt::format("control row: expected at least one logit, found {}", vocab));
  }
  logits_ = logits;
  weights_.resize(static_cast<size_t>(vocab));
  const logit_rows::Largest largest = logit_rows::largest(logits, vocab);
  finite_ = largest.finite;
  top_ = -1;
  if (!finite_) return;
  largest_ = largest.value;
  top_ = static_cast<int32_t>(logit_rows::first_index(logits, vocab, largest_));
  const float second = std::max(logit_rows::largest(logits, top_).value,
                                logit_rows::largest(logits + top_ + 1, vocab - top_ - 1).value);
  top2_margin_ = vocab > 1 ? static_cast<double>(largest_) - static_cast<double>(second) : 0;
  const logit_rows::Weights weights =
      logit_rows::exponentials(logits, vocab, largest_, weights_.data());
  sum_ = weights.sum;
  log_sum_ = std::log(weights.sum);
  self_sampled_ = weights.sum_squares / (weights.sum * weights.sum);
}

void ControlRow::check_token(int32_t token) const {
  if (token >= 0 && static_cast<size_t>(token) < weights_.size()) return;
  throw ValueError(
      fmt::format("reference token: expected an id in [0, {}), found {}", weights_.size(), token));
}

double ControlRow::logprob(int32_t token) const {
  check_token(token);
  if (!finite_) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(logits_[token]) - static_cast<double>(largest_) - log_sum_;
}

RowMetrics ControlRow::compare(const float* logits, int32_t reference_token) const {
  check_token(reference_token);
  const auto vocab = static_cast<int64_t>(weights_.size());
  const logit_rows::Largest largest = logit_rows::largest(logits, vocab);
  RowMetrics out;
  out.finite = finite_ && largest.finite;
  if (!out.finite) return out;

  const logit_rows::Contrast contrast =
      logit_rows::contrast(weights_.data(), logits_, logits, vocab, largest.value);
  const double log_sum = std::log(contrast.sum);
  const double shift_difference =
      static_cast<double>(largest_) - static_cast<double>(largest.value);
  // sum p (a - b) - (LSE a - LSE b). Rounding may leave -1e-16 where the rows agree.
  out.kld = std::max(0.0, contrast.difference / sum_ - shift_difference - (log_sum_ - log_sum));
  out.nll_ctrl = -logprob(reference_token);
  out.nll_cand =
      log_sum - (static_cast<double>(logits[reference_token]) - static_cast<double>(largest.value));
  out.dp = std::exp(-out.nll_cand) - std::exp(-out.nll_ctrl);
  out.top = static_cast<int32_t>(logit_rows::first_index(logits, vocab, largest.value));
  out.same_top = out.top == top_;
  out.same_sampled = contrast.product / (sum_ * contrast.sum);
  out.self_sampled = self_sampled_;
  out.top2_margin = top2_margin_;
  return out;
}

void compare_rows(const float* control, const float* candidate, int64_t vocab,
                  int32_t reference_token, RowMetrics& out) {
  ControlRow row;
  row.prepare(control, vocab);
  out = row.compare(candidate, reference_token);
}

PositionBuckets::PositionBuckets(std::vector<int64_t> edges) : edges_(std::move(edges)) {
  if (edges_.empty()) throw ValueError("buckets: expected at least one edge, found none");
  int64_t previous = 0;
  for (const int64_t edge : edges_) {
    if (edge <= previous) {
      throw ValueError(fmt::format("buckets: expected an edge above {}, found {}", previous, edge));
    }
    labels_.push_back(fmt::format("{}", edge));
    previous = edge;
  }
  labels_.push_back(fmt::format("over {}", previous));
}

const std::string& PositionBuckets::label(int64_t tokens_attended) const {
  const auto edge = std::lower_bound(edges_.begin(), edges_.end(), tokens_attended);
  return labels_[static_cast<size_t>(edge - edges_.begin())];
}

void add_row(LogitRecord& record, const RowMetrics& row) {
  if (!row.finite) {
    ++record.non_finite;
    return;
  }
  ++record.n;
  record.kld += row.kld;
  record.nll_ctrl += row.nll_ctrl;
  record.nll_cand += row.nll_cand;
  record.same_top += row.same_top ? 1 : 0;
  record.dp += row.dp;
  record.dp_squared += row.dp * row.dp;
  const double delta = row.nll_cand - row.nll_ctrl;
  record.delta_nll_squared += delta * delta;
  record.same_sampled += row.same_sampled;
  record.self_sampled += row.self_sampled;
  record.kld_values.push_back(static_cast<float>(row.kld));
}

namespace {

/// Sums over the positions of one document, the unit of resampling.
struct Sums {
  double n = 0, kld = 0, delta_nll = 0;
};

/// CR1 for a mean over positions, from sums per cluster: the cluster's deviation is its sum less
/// its positions times the mean.
double cr1_error(const std::vector<Sums>& documents, double Sums::*sum, double n, double mean) {
  const auto clusters = static_cast<double>(documents.size());
  if (clusters < 2) return std::numeric_limits<double>::quiet_NaN();
  double squares = 0;
  for (const Sums& document : documents) {
    const double deviation = document.*sum - document.n * mean;
    squares += deviation * deviation;
  }
  return std::sqrt(squares * clusters / (clusters - 1)) / n;
}

/// sqrt(population variance / (n - 1)), from the sum of squares.
double naive_error(double n, double mean, double sum_squares) {
  if (n < 2) return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(std::max(0.0, sum_squares / n - mean * mean) / (n - 1));
}

std::vector<Sums> by_document(std::span<const LogitRecord> records) {
  std::map<std::string, Sums> sums;
  for (const LogitRecord& record : records) {
    if (record.n == 0) continue;
    Sums& document = sums[record.document];
    document.n += static_cast<double>(record.n);
    document.kld += record.kld;
    document.delta_nll += record.nll_cand - record.nll_ctrl;
  }
  std::vector<Sums> out;
  for (const auto& [name, document] : sums) out.push_back(document);
  return out;
}

std::vector<double> all_kld_values(std::span<const LogitRecord> records) {
  std::vector<double> out;
  for (const LogitRecord& record : records) {
    out.insert(out.end(), record.kld_values.begin(), record.kld_values.end());
  }
  return out;
}

LogitRecord total_of(std::span<const LogitRecord> records) {
  LogitRecord total;
  for (const LogitRecord& record : records) {
    total.n += record.n;
    total.non_finite += record.non_finite;
    total.kld += record.kld;
    total.nll_ctrl += record.nll_ctrl;
    total.nll_cand += record.nll_cand;
    total.same_top += record.same_top;
    total.dp += record.dp;
    total.dp_squared += record.dp_squared;
    total.delta_nll_squared += record.delta_nll_squared;
    total.same_sampled += record.same_sampled;
    total.self_sampled += record.self_sampled;
  }
  return total;
}

void set_quantiles(LogitSummary& out, std::vector<double> values) {
  if (values.empty()) return;
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  out.kld_min = *least;
  out.kld_max = *largest;
  const std::vector<double> found = percentiles(std::move(values), kKldQuantiles);
  std::copy(found.begin(), found.end(), out.kld_quantiles.begin());
}

}  // namespace

LogitSummary summarize(std::span<const LogitRecord> records) {
  const LogitRecord total = total_of(records);
  LogitSummary out;
  out.n = total.n;
  out.non_finite = total.non_finite;
  if (total.n == 0) return out;
  const auto n = static_cast<double>(total.n);
  const std::vector<Sums> documents = by_document(records);
  std::vector<double> klds = all_kld_values(records);
  double kld_squares = 0;
  for (const double value : klds) kld_squares += value * value;

  out.documents = static_cast<int64_t>(documents.size());
  out.nll_ctrl = total.nll_ctrl / n;
  out.nll_cand = total.nll_cand / n;
  const double kld = total.kld / n;
  const double delta = (total.nll_cand - total.nll_ctrl) / n;
  out.kld = {kld, cr1_error(documents, &Sums::kld, n, kld), naive_error(n, kld, kld_squares)};
  out.ln_ppl_ratio = {delta, cr1_error(documents, &Sums::delta_nll, n, delta),
                      naive_error(n, delta, total.delta_nll_squared)};
  out.same_top = total.same_top / n;
  out.dp = total.dp / n;
  out.rms_dp = std::sqrt(total.dp_squared / n);
  out.same_sampled = total.same_sampled / n;
  out.self_sampled = total.self_sampled / n;
  set_quantiles(out, std::move(klds));
  return out;
}

}  // namespace kv
