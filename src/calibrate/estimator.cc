#include "calibrate/estimator.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/e4m3.h"

namespace kv {
namespace {

constexpr std::string_view kPercentilePrefix = "percentile:";

float percentile_of(const ValueHistogram& values, double percent) {
  const auto total = static_cast<double>(values.count());
  // 99.99 has no exact binary form: without the slack its rank among 10,000 would be 10,000.
  const double rank = std::ceil(percent / 100 * total * (1 - 1e-12));
  int64_t below = 0;
  for (const ValueHistogram::Bin& bin : values.bins()) {
    below += bin.count;
    if (static_cast<double>(below) >= rank) return bin.magnitude;
  }
  return 0;
}

/// Mean square error of E4M3 under a scale.
double square_error(const std::vector<ValueHistogram::Bin>& bins, float scale) {
  double error = 0, count = 0;
  for (const ValueHistogram::Bin& bin : bins) {
    const double back =
        static_cast<double>(scale) * e4m3::decode(e4m3::encode(bin.magnitude / scale));
    const double off = bin.magnitude - back;
    error += static_cast<double>(bin.count) * off * off;
    count += static_cast<double>(bin.count);
  }
  return count > 0 ? error / count : 0;
}

float least_error_range(const ValueHistogram& values) {
  const std::vector<ValueHistogram::Bin> bins = values.bins();
  if (bins.empty() || bins.back().magnitude == 0) return 0;
  const float amax = bins.back().magnitude;
  float best = amax;
  double least = square_error(bins, scale_of_range({}, amax));
  for (int i = kMseCandidates - 2; i >= 0; --i) {
    const float range = mse_candidate(amax, i);
    const double error = square_error(bins, scale_of_range({}, range));
    if (error < least) {
      least = error;
      best = range;
    }
  }
  return best;
}

}  // namespace

Estimator Estimator::parse(std::string_view text) {
  Estimator out;
  if (text == "amax") return out;
  out.kind = Kind::kMse;
  if (text == "mse") return out;
  out.kind = Kind::kPow2;
  if (text == "pow2") return out;
  out.kind = Kind::kPercentile;
  if (text.starts_with(kPercentilePrefix)) {
    const std::string_view number = text.substr(kPercentilePrefix.size());
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), out.percent);
    const bool is_whole = error == std::errc() && end == number.data() + number.size();
    if (is_whole && out.percent > 0 && out.percent <= 100) return out;
  }
  throw ValueError(fmt::format(
      "estimator: expected amax, percentile:P with P above 0 and at most 100, mse or pow2, found "
      "\"{}\"",
      std::string(text)));
}

std::string_view Estimator::name() const {
  switch (kind) {
    case Kind::kPercentile:
      return "percentile";
    case Kind::kMse:
      return "mse";
    case Kind::kPow2:
      return "pow2";
    case Kind::kAmax:
      break;
  }
  return "amax";
}

std::string Estimator::text() const {
  return kind == Kind::kPercentile ? fmt::format("percentile:{}", percent) : std::string(name());
}

float mse_candidate(float amax, int i) {
  if (i == kMseCandidates - 1) return amax;
  return static_cast<float>((0.3 + 0.7 * i / (kMseCandidates - 1)) * amax);
}

float estimate_range(const Estimator& estimator, const ValueHistogram& values) {
  switch (estimator.kind) {
    case Estimator::Kind::kPercentile:
      return percentile_of(values, estimator.percent);
    case Estimator::Kind::kMse:
      return least_error_range(values);
    case Estimator::Kind::kAmax:
    case Estimator::Kind::kPow2:
      break;
  }
  return values.amax();
}

float scale_of_range(const Estimator& estimator, float range) {
  if (!(range > 0)) return 1;
  if (estimator.kind != Estimator::Kind::kPow2) return bf16::round_up(range / 448.0f);
  int exponent = 0;
  std::frexp(range / 448.0, &exponent);
  // 448 times a power of two is exact: the least power that reaches the range.
  while (std::ldexp(448.0, exponent - 1) >= range) --exponent;
  return static_cast<float>(std::ldexp(1.0, exponent));
}

}  // namespace kv
