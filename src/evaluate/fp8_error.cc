#include "evaluate/fp8_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <thread>

#include "kvscale/error.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr int64_t kBlockRows = 128;

constexpr std::array kPaths = {
    ErrorPath::kFp16Standard,   ErrorPath::kFp16Flash,       ErrorPath::kFp8Tensor,
    ErrorPath::kFp8Blocks,      ErrorPath::kFp8Hadamard,     ErrorPath::kFp8HadamardBlocks,
    ErrorPath::kStoredScaleOne, ErrorPath::kStoredPerTensor, ErrorPath::kStoredPerTokenVector};

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;
  float* row(int64_t r) { return values.data() + r * columns; }
  const float* row(int64_t r) const { return values.data() + r * columns; }
};

class Normal {
 public:
  explicit Normal(uint64_t seed) : random_(seed) {}

  /// Box and Muller's; one of the two numbers is thrown away, so that a draw is a function of its
  /// place alone.
  double next() {
    const double radius = std::sqrt(-2 * std::log(1 - random_.uniform()));
    return radius * std::cos(2 * std::numbers::pi * random_.uniform());
  }

  double with_outliers() {
    const double plain = next(), large = 10 * next();
    return random_.uniform() < 0.001 ? plain + large : plain;
  }

  bool coin() { return random_.next() >> 63; }

 private:
  SplitMix64 random_;
};

Matrix draw(int64_t rows, int64_t columns, uint64_t seed) {
  Matrix out{rows, columns, std::vector<float>(static_cast<size_t>(rows * columns))};
  Normal normal(seed);
  for (float& value : out.values) value = static_cast<float>(normal.with_outliers());
  return out;
}

float through_f16(float x) { return f16::decode(f16::encode(x)); }

Matrix in_f16(Matrix m) {
  for (float& value : m.values) value = through_f16(value);
  return m;
}

float amax(std::span<const float> values) {
  float out = 0;
  for (const float value : values) out = std::max(out, std::abs(value));
  return out;
}

void through_e4m3(std::span<float> values, float scale) {
  for (float& value : values) value = scale * e4m3::decode(e4m3::encode(value / scale));
}

/// Each group of so many rows with its own amax / 448.
Matrix in_e4m3(Matrix m, int64_t rows_per_scale) {
  for (int64_t row = 0; row < m.rows; row += rows_per_scale) {
    const int64_t rows = std::min(rows_per_scale, m.rows - row);
    const std::span<float> group(m.row(row), static_cast<size_t>(rows * m.columns));
    through_e4m3(group, amax(group) / e4m3::kMax);
  }
  return m;
}

Matrix at_scale_one(Matrix m) {
  through_e4m3(m.values, 1);
  return m;
}

/// Every row times the same orthogonal matrix: random signs, then Walsh and Hadamard's, divided by
/// the square root of their size. Products of rotated rows are those of the rows.
Matrix rotated(Matrix m, uint64_t seed) {
  Normal random(seed);
  std::vector<float> signs(static_cast<size_t>(m.columns));
  for (float& sign : signs) sign = random.coin() ? 1.0f : -1.0f;
  const float norm = 1 / std::sqrt(static_cast<float>(m.columns));
  for (int64_t r = 0; r < m.rows; ++r) {
    float* row = m.row(r);
    for (int64_t c = 0; c < m.columns; ++c) row[c] *= signs[static_cast<size_t>(c)] * norm;
    for (int64_t half = 1; half < m.columns; half *= 2) {
      for (int64_t c = 0; c < m.columns; ++c) {
        if (c & half) continue;
        const float a = row[c], b = row[c + half];
        row[c] = a + b;
        row[c + half] = a - b;
      }
    }
  }
  return m;
}

/// What happens between the two products.
enum class Inner : uint8_t { kExact, kF16Throughout, kF16Probabilities, kE4m3Probabilities };

template <class Real>
Real probability(Real score, Real most, Inner inner) {
  const Real p = std::exp(score - most);
  if (inner == Inner::kExact) return p;
  const auto narrow = static_cast<float>(p);
  if (inner != Inner::kE4m3Probabilities) return through_f16(narrow);
  return e4m3::decode(e4m3::encode(narrow * e4m3::kMax)) / e4m3::kMax;
}

/// Scores, softmax and output of one query row: k_columns [head_dim, keys], v [keys, head_dim].
template <class Real>
class QueryRow {
 public:
  QueryRow(const Matrix& k_columns, const Matrix& v, Inner inner)
      : k_(k_columns), v_(v), inner_(inner), p_(static_cast<size_t>(k_columns.columns)) {}

  std::vector<Real> attend(const float* q) {
    scores(q);
    const Real most = *std::ranges::max_element(p_);
    Real sum = 0;
    for (Real& p : p_) {
      const Real exact = std::exp(p - most);
      p = probability(p, most, inner_);
      sum += inner_ == Inner::kF16Throughout ? p : exact;
    }
    std::vector<Real> out(static_cast<size_t>(v_.columns), 0);
    Real* __restrict sums = out.data();
    for (int64_t n = 0; n < v_.rows; ++n) {
      const float* __restrict row = v_.row(n);
      // Stored probabilities are normalised before they are rounded.
      const Real p = inner_ == Inner::kF16Throughout
                         ? through_f16(static_cast<float>(p_[static_cast<size_t>(n)] / sum))
                         : p_[static_cast<size_t>(n)];
      for (int64_t d = 0; d < v_.columns; ++d) sums[d] += p * static_cast<Real>(row[d]);
    }
    if (inner_ == Inner::kF16Throughout) return out;
    for (Real& value : out) value /= sum;
    return out;
  }

 private:
  void scores(const float* q) {
    std::ranges::fill(p_, Real{0});
    Real* __restrict sums = p_.data();
    for (int64_t d = 0; d < k_.rows; ++d) {
      const float* __restrict column = k_.row(d);
      const Real factor = q[d];
      for (int64_t n = 0; n < k_.columns; ++n) sums[n] += factor * static_cast<Real>(column[n]);
    }
    const Real scale = 1 / std::sqrt(static_cast<Real>(k_.rows));
    for (Real& score : p_) {
      score *= scale;
      if (inner_ == Inner::kF16Throughout) score = through_f16(static_cast<float>(score));
    }
  }

  const Matrix& k_;
  const Matrix& v_;
  Inner inner_;
  std::vector<Real> p_;
};

Matrix transposed(const Matrix& m) {
  Matrix out{m.columns, m.rows, std::vector<float>(m.values.size())};
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.columns; ++c) out.row(c)[r] = m.row(r)[c];
  }
  return out;
}

template <class Real>
std::vector<double> attend(const Matrix& q, const Matrix& k, const Matrix& v, Inner inner) {
  const Matrix columns = transposed(k);
  QueryRow<Real> row(columns, v, inner);
  std::vector<double> out;
  for (int64_t r = 0; r < q.rows; ++r) {
    for (const Real value : row.attend(q.row(r))) out.push_back(static_cast<double>(value));
  }
  return out;
}

/// One seed's inputs and its exact result.
class Trial {
 public:
  Trial(const ErrorExperiment& e, uint64_t seed)
      : seed_(seed),
        q_(draw(e.queries, e.head_dim, mix(seed + 1))),
        k_(draw(e.keys, e.head_dim, mix(seed + 2))),
        v_(draw(e.keys, e.head_dim, mix(seed + 3))),
        exact_(attend<double>(q_, k_, v_, Inner::kExact)) {}

  double rmse(ErrorPath path) const {
    const std::vector<double> found = run(path);
    double sum = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      sum += (found[i] - exact_[i]) * (found[i] - exact_[i]);
    }
    return std::sqrt(sum / static_cast<double>(found.size()));
  }

 private:
  std::vector<double> run(ErrorPath path) const {
    switch (path) {
      case ErrorPath::kFp16Standard:
        return attend<float>(in_f16(q_), in_f16(k_), in_f16(v_), Inner::kF16Throughout);
      case ErrorPath::kFp16Flash:
        return stored(in_f16(k_), in_f16(v_));
      case ErrorPath::kFp8Tensor:
        return fp8(q_, k_, q_.rows, k_.rows);
      case ErrorPath::kFp8Blocks:
        return fp8(q_, k_, kBlockRows, kBlockRows);
      case ErrorPath::kFp8Hadamard:
        return fp8(rotated(q_, seed_), rotated(k_, seed_), q_.rows, k_.rows);
      case ErrorPath::kFp8HadamardBlocks:
        return fp8(rotated(q_, seed_), rotated(k_, seed_), kBlockRows, kBlockRows);
      case ErrorPath::kStoredScaleOne:
        return stored(at_scale_one(k_), at_scale_one(v_));
      case ErrorPath::kStoredPerTensor:
        return stored(in_e4m3(k_, k_.rows), in_e4m3(v_, v_.rows));
      case ErrorPath::kStoredPerTokenVector:
        return stored(in_e4m3(k_, 1), in_e4m3(v_, 1));
    }
    throw ValueError("measure_fp8_error: unknown path");
  }

  std::vector<double> fp8(const Matrix& q, const Matrix& k, int64_t q_rows, int64_t k_rows) const {
    return attend<float>(in_e4m3(q, q_rows), in_e4m3(k, k_rows), in_e4m3(v_, k_rows),
                         Inner::kE4m3Probabilities);
  }

  std::vector<double> stored(const Matrix& k, const Matrix& v) const {
    return attend<float>(in_f16(q_), k, v, Inner::kF16Probabilities);
  }

  uint64_t seed_;
  Matrix q_, k_, v_;
  std::vector<double> exact_;
};

void check(const ErrorExperiment& e) {
  if (e.queries < 1 || e.keys < 1 || e.keys % kBlockRows != 0 || e.seeds < 1 || e.threads < 1 ||
      e.head_dim < 1 || !std::has_single_bit(static_cast<uint64_t>(e.head_dim))) {
    throw ValueError(
        fmt::format("measure_fp8_error: expected positive sizes, keys in blocks of {} and a "
                    "head_dim that is a power of two, found {} queries, {} keys, head_dim {}, {} "
                    "seeds, {} threads",
                    kBlockRows, e.queries, e.keys, e.head_dim, e.seeds, e.threads));
  }
}

}  // namespace

std::span<const ErrorPath> error_paths() { return kPaths; }

std::string_view name(ErrorPath path) {
  constexpr std::array<std::string_view, kPaths.size()> kNames = {
      "FP16, scores and probabilities stored",  "FP16, softmax in F32",
      "FP8, per tensor: Q, K, V and P",         "FP8, one scale per 128 rows",
      "FP8, per tensor, Q and K rotated",       "FP8, one scale per 128 rows, rotated",
      "K and V stored in FP8: scale 1.0",       "K and V stored in FP8: per tensor",
      "K and V stored in FP8: per token vector"};
  return kNames.at(static_cast<size_t>(path));
}

double ErrorRow::mean() const {
  double sum = 0;
  for (const double value : rmse) sum += value;
  return sum / static_cast<double>(rmse.size());
}
double ErrorRow::least() const { return *std::ranges::min_element(rmse); }
double ErrorRow::most() const { return *std::ranges::max_element(rmse); }

std::vector<ErrorRow> measure_fp8_error(const ErrorExperiment& experiment) {
  check(experiment);
  std::vector<ErrorRow> out;
  for (const ErrorPath path : kPaths) {
    out.push_back({path, std::vector<double>(static_cast<size_t>(experiment.seeds))});
  }
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t seed = next++; seed < static_cast<size_t>(experiment.seeds); seed = next++) {
      const Trial trial(experiment, SplitMix64::replicate_seed(experiment.seed, seed));
      for (ErrorRow& row : out) row.rmse[seed] = trial.rmse(row.path);
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < experiment.threads; ++i) others.emplace_back(work);
  work();
  others.clear();  // joins them
  return out;
}

}  // namespace kv
