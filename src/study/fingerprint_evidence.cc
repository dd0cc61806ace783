#include "study/fingerprint_evidence.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr size_t kBlockTokens = 16;  // neighbours share their keys, and so their errors
constexpr int kBootstraps = 1000;
constexpr int64_t kLeastTokens = 96;  // six blocks: fewer make no bootstrap
constexpr size_t kLeastLive = 3;
// What a token's sensitivity is the median of: always the same ones, since dividing by the best
// one's own error would take away what tells it from the others.
constexpr size_t kReference = 6;
// Of a log-likelihood ratio against no relation at all: beyond what a hundred hypotheses give by
// chance (chi-squared with one degree of freedom, halved).
constexpr double kLeastEvidence = 10;
// A server that is broken, served, correlated at 0.27 with scales that break the model; hypotheses
// that were right correlated at 0.71 to 0.89 (docs/fingerprint.md).
constexpr double kLeastCorrelation = 0.5;
// Differences that are a server's own noise are no larger than what the control, asked twice,
// shows.
constexpr double kNoiseRatio = 1.5;

double squares_of(std::span<const double> values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

double rms_of(std::span<const double> values) {
  return values.empty() ? 0 : std::sqrt(squares_of(values) / static_cast<double>(values.size()));
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// What is left of `values` by least squares on a constant and `along`.
std::vector<double> without_trend(std::span<const double> values, std::span<const double> along) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  const double along_mean = std::accumulate(along.begin(), along.end(), 0.0) / n;
  double cross = 0, square = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    cross += (values[i] - mean) * (along[i] - along_mean);
    square += (along[i] - along_mean) * (along[i] - along_mean);
  }
  const double slope = square > 0 ? cross / square : 0;
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); ++i) {
    out.push_back(values[i] - mean - slope * (along[i] - along_mean));
  }
  return out;
}

std::vector<double> difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}

/// How much each token moves under some hypotheses.
std::vector<double> sensitivities(std::span<const std::vector<double>> emulated) {
  std::vector<double> out;
  for (size_t t = 0; t < emulated.front().size(); ++t) {
    std::vector<double> here;
    for (const std::vector<double>& one : emulated) here.push_back(std::abs(one[t]));
    out.push_back(median_of(std::move(here)));
  }
  const double floor = std::max(median_of(out) / 2, 1e-9);
  for (double& x : out) x = std::max(x, floor);
  return out;
}

std::vector<double> divided_and_limited(std::vector<double> values,
                                        std::span<const double> divisors) {
  for (size_t i = 0; i < values.size(); ++i) values[i] /= divisors[i];
  const double limit = kFingerprintClip * rms_of(values);
  for (double& x : values) x = std::clamp(x, -limit, limit);
  return values;
}

void expect_size(const char* what, size_t expected, size_t found) {
  if (expected == found) return;
  throw ValueError(fmt::format("fingerprint: {}: expected {}, found {}", what, expected, found));
}

/// The piece without tokens that have no finite logprob somewhere.
FingerprintPiece finite_part(const FingerprintPiece& piece) {
  const auto keeps = [&](size_t t) {
    return std::isfinite(piece.control[t]) && std::isfinite(piece.candidate[t]) &&
           std::isfinite(piece.own_control[t]) &&
           std::ranges::all_of(piece.own_by_index,
                               [&](const auto& one) { return std::isfinite(one[t]); });
  };
  FingerprintPiece out;
  out.own_by_index.resize(piece.own_by_index.size());
  for (size_t t = 0; t < piece.control.size(); ++t) {
    if (!keeps(t)) continue;
    out.control.push_back(piece.control[t]);
    out.candidate.push_back(piece.candidate[t]);
    out.own_control.push_back(piece.own_control[t]);
    for (size_t h = 0; h < piece.own_by_index.size(); ++h) {
      out.own_by_index[h].push_back(piece.own_by_index[h][t]);
    }
  }
  return out;
}

}  // namespace

void FingerprintEvidence::Sums::add(const Sums& other) {
  n += other.n;
  dd += other.dd;
  dh += other.dh;
  hh += other.hh;
}

double FingerprintEvidence::Sums::gain() const { return hh > 0 ? dh / hh : 0; }

double FingerprintEvidence::Sums::correlation() const {
  return dd > 0 && hh > 0 ? dh / std::sqrt(dd * hh) : 0;
}

double FingerprintEvidence::Sums::log_likelihood() const {
  const double r = correlation();
  return r <= 0 ? 0 : -n / 2 * std::log1p(-std::min(r * r, 1 - 1e-12));
}

FingerprintEvidence::FingerprintEvidence(size_t hypotheses)
    : live_(hypotheses), blocks_(hypotheses) {
  if (hypotheses == 0) throw ValueError("fingerprint: expected a hypothesis, found none");
  std::iota(live_.begin(), live_.end(), size_t{0});
}

void FingerprintEvidence::add_blocks(size_t hypothesis, std::span<const double> served,
                                     std::span<const double> emulated) {
  for (size_t i = 0; i < served.size(); ++i) {
    if (i % kBlockTokens == 0) blocks_[hypothesis].emplace_back();
    blocks_[hypothesis].back().add(
        {1, served[i] * served[i], served[i] * emulated[i], emulated[i] * emulated[i]});
  }
}

void FingerprintEvidence::add(const FingerprintPiece& piece) {
  const size_t n = piece.control.size();
  expect_size("the candidate's logprobs", n, piece.candidate.size());
  expect_size("the emulated control's logprobs", n, piece.own_control.size());
  expect_size("emulated hypotheses", live_.size(), piece.own_by_index.size());
  for (const auto& one : piece.own_by_index) expect_size("emulated logprobs", n, one.size());
  const FingerprintPiece kept = finite_part(piece);
  impossible_ += static_cast<int64_t>(n - kept.control.size());
  if (kept.control.empty()) return;
  const std::vector<double> raw = difference(kept.candidate, kept.control);
  tokens_ += std::ssize(raw);
  squares_ += squares_of(raw);
  std::vector<std::vector<double>> emulated;
  for (const std::vector<double>& one : kept.own_by_index) {
    emulated.push_back(without_trend(difference(one, kept.own_control), kept.own_control));
  }
  const std::vector<double> by =
      sensitivities(std::span(emulated).first(std::min(kReference, emulated.size())));
  const std::vector<double> served = divided_and_limited(without_trend(raw, kept.control), by);
  for (size_t h = 0; h < live_.size(); ++h) {
    add_blocks(live_[h], served, divided_and_limited(std::move(emulated[h]), by));
  }
}

void FingerprintEvidence::add_repeat(std::span<const double> first,
                                     std::span<const double> second) {
  expect_size("the control's logprobs, asked again", first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const double moved = second[i] - first[i];
    if (!std::isfinite(moved)) continue;
    noise_squares_ += moved * moved;
    ++noise_tokens_;
  }
}

/// How often each live hypothesis is the best one over blocks drawn with replacement.
std::vector<double> FingerprintEvidence::bootstrap_shares() const {
  std::vector<double> wins(live_.size());
  const size_t count = blocks_[live_.front()].size();
  SplitMix64 random(count);
  std::vector<Sums> total(live_.size());
  for (int b = 0; b < kBootstraps && count > 0; ++b) {
    std::ranges::fill(total, Sums{});
    for (size_t i = 0; i < count; ++i) {
      const auto drawn = static_cast<size_t>(random.below(count));
      for (size_t h = 0; h < live_.size(); ++h) total[h].add(blocks_[live_[h]][drawn]);
    }
    const auto best =
        std::ranges::max_element(total, {}, [](const Sums& one) { return one.log_likelihood(); });
    wins[static_cast<size_t>(best - total.begin())] += 1.0 / kBootstraps;
  }
  return wins;
}

Fingerprint FingerprintEvidence::judge(bool is_last) const {
  Fingerprint out;
  out.tokens = tokens_;
  out.impossible = impossible_;
  out.rms = tokens_ > 0 ? std::sqrt(squares_ / static_cast<double>(tokens_)) : 0;
  out.noise_rms =
      noise_tokens_ > 0 ? std::sqrt(noise_squares_ / static_cast<double>(noise_tokens_)) : 0;
  const std::vector<double> shares = bootstrap_shares();
  for (size_t h = 0; h < live_.size(); ++h) {
    Sums total;
    for (const Sums& block : blocks_[live_[h]]) total.add(block);
    out.rows.push_back(
        {live_[h], total.correlation(), total.gain(), total.log_likelihood(), shares[h], false});
  }
  std::ranges::stable_sort(out.rows, std::greater{}, &FingerprintRow::log_likelihood);
  const FingerprintRow best = out.rows.front();
  for (size_t i = 0; i < dropped_.size(); ++i) {
    out.rows.push_back(dropped_[i]);
    out.rows.back().log_likelihood = best.log_likelihood - gaps_[i];
  }
  std::ranges::stable_sort(out.rows, std::greater{}, &FingerprintRow::log_likelihood);
  const double lead =
      out.rows.size() > 1 ? best.log_likelihood - out.rows[1].log_likelihood : best.log_likelihood;
  const bool has_evidence =
      best.log_likelihood >= kLeastEvidence && best.correlation >= kLeastCorrelation;
  if (tokens_ < kLeastTokens) {
    out.end = Fingerprint::End::kUndecided;
  } else if (squares_ == 0 ||
             (is_last && !has_evidence && out.rms <= kNoiseRatio * out.noise_rms)) {
    out.end = Fingerprint::End::kNotQuantized;
  } else if (has_evidence && lead >= kFingerprintLead && best.share >= kFingerprintShare) {
    out.end = Fingerprint::End::kNamed;
  } else if (is_last && !has_evidence) {
    out.end = Fingerprint::End::kNoneOfThese;
  }
  return out;
}

void FingerprintEvidence::drop_hopeless(const Fingerprint& judged) {
  const double best = judged.rows.front().log_likelihood;
  for (size_t i = kLeastLive; i < judged.rows.size(); ++i) {
    const FingerprintRow& row = judged.rows[i];
    const double gap = best - row.log_likelihood;
    const bool is_hopeless = gap >= kFingerprintDrop && row.share == 0;
    if (row.is_dropped || !is_hopeless || row.hypothesis < kReference) continue;
    std::erase(live_, row.hypothesis);
    dropped_.push_back(row);
    dropped_.back().is_dropped = true;
    gaps_.push_back(gap);
  }
}

}  // namespace kv
