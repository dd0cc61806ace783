#include "evaluate/kld_curve.h"

#include <algorithm>
#include <cmath>

#include "evaluate/index.h"
#include "evaluate/logit_metrics.h"
#include "numeric/bf16.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

// Rows of logits held at a time: 16 of a large vocabulary are 10 MB.
constexpr int64_t kRowsPerCall = 16;
constexpr uint64_t kSeed = 20;  // any: every run must try the same directions

double length_of(std::span<const uint16_t> row) {
  double sum = 0;
  for (const uint16_t one : row) sum += double{bf16::decode(one)} * bf16::decode(one);
  return std::sqrt(sum);
}

}  // namespace

const std::vector<double>& KldCurve::errors() {
  // Steps of 4, over which KLD is close to a power of the error; 0.01 % to 655 %.
  static const std::vector<double> all = [] {
    std::vector<double> out = {1e-4};
    while (out.size() < 9) out.push_back(out.back() * 4);
    return out;
  }();
  return all;
}

void KldCurve::probe(const OutputTap& tap) {
  SplitMix64 random(kSeed);
  std::vector<uint16_t> directions;
  for (int64_t i = 0; i < kProbes * tap.hidden_size; ++i) {
    const float weight = tap.final_norm[i % tap.hidden_size];
    directions.push_back(bf16::encode(random.next() >> 63 != 0 ? weight : -weight));
  }
  probe_size_ = length_of(std::span(directions).first(index(tap.hidden_size)));
  probes_.resize(index(kProbes * tap.vocab_size));
  tap.logits(directions.data(), kProbes, probes_.data());
}

void KldCurve::add(const OutputTap& tap, std::span<const int64_t> rows) {
  if (rows.empty()) return;
  if (probes_.empty()) probe(tap);
  std::vector<uint16_t> hidden;
  std::vector<float> logits;
  for (size_t first = 0; first < rows.size(); first += index(kRowsPerCall)) {
    const auto some = rows.subspan(first, std::min(index(kRowsPerCall), rows.size() - first));
    hidden.clear();
    for (const int64_t row : some) {
      hidden.insert(hidden.end(), tap.normed + row * tap.hidden_size,
                    tap.normed + (row + 1) * tap.hidden_size);
    }
    logits.resize(some.size() * index(tap.vocab_size));
    tap.logits(hidden.data(), std::ssize(some), logits.data());
    for (size_t r = 0; r < some.size(); ++r) {
      const auto row = std::span(hidden).subspan(r * index(tap.hidden_size), index(tap.hidden_size));
      add_row(std::span(logits).subspan(r * index(tap.vocab_size), index(tap.vocab_size)),
              length_of(row) / probe_size_);
    }
  }
}

void KldCurve::add_row(std::span<const float> logits, double size) {
  ControlRow control;
  control.prepare(logits.data(), std::ssize(logits));
  if (!control.finite()) return;
  std::vector<float> moved(logits.size());
  for (int64_t i = 0; i < kProbesPerPosition; ++i) {
    const int64_t number = (positions_ * kProbesPerPosition + i) % kProbes;
    const float* probe = probes_.data() + number * std::ssize(logits);
    for (size_t e = 0; e < errors().size(); ++e) {
      const auto factor = static_cast<float>(size * std::sqrt(errors()[e]));
      for (size_t v = 0; v < moved.size(); ++v) moved[v] = logits[v] + factor * probe[v];
      sums_[e] += control.compare(moved.data(), 0).kld;
    }
  }
  ++positions_;
}

CurveRecord KldCurve::record() const {
  CurveRecord out;
  out.record_id = "curve";
  out.errors = errors();
  out.positions = positions_;
  for (const double sum : sums_) {
    const auto tries = static_cast<double>(positions_ * kProbesPerPosition);
    out.klds.push_back(positions_ > 0 ? sum / tries : 0);
  }
  return out;
}

}  // namespace kv
