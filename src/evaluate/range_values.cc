#include "evaluate/range_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numeric/e4m3.h"

namespace kv {
namespace {

void multiply_by(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

/// Tiles of 128 values under a scale each; what lies behind the latent stays as it is.
EncodeCounts store_tiles(int64_t latent_values, Rounding rounding, const float* x, int64_t tokens,
                         int64_t head_dim, float* stored, std::vector<uint8_t>& codes) {
  EncodeCounts counts;
  std::copy_n(x, tokens * head_dim, stored);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t first = 0; first < std::min(latent_values, head_dim); first += kLatentTile) {
      const float* from = x + token * head_dim + first;
      float* to = stored + token * head_dim + first;
      const float scale =
          std::max(max_abs(from, kLatentTile) / e4m3::kMax, std::numeric_limits<float>::min());
      counts += e4m3_encode(from, codes.data(), kLatentTile, scale, rounding);
      e4m3_decode(codes.data(), to, kLatentTile);
      multiply_by(to, kLatentTile, scale);
    }
  }
  return counts;
}

}  // namespace

EncodeCounts store_and_load(const RangeLayout& layout, float static_scale, Rounding rounding,
                            const float* x, int64_t tokens, int64_t head_dim, float* stored,
                            std::vector<uint8_t>& codes) {
  const Format format = layout.format;
  const auto n = static_cast<size_t>(tokens * head_dim);
  codes.resize(n);
  if (!has_inline_scales(format)) {
    const EncodeCounts counts = e4m3_encode(x, codes.data(), n, static_scale, rounding);
    e4m3_decode(codes.data(), stored, n);
    multiply_by(stored, tokens * head_dim, static_scale);
    return counts;
  }
  if (format == Format::kE4m3PerTokenTile) {
    return store_tiles(layout.latent_values, rounding, x, tokens, head_dim, stored, codes);
  }
  EncodeCounts counts;
  const auto row_size = static_cast<size_t>(head_dim);
  for (size_t row = 0; row < n; row += row_size) {
    const float scale = std::max(max_abs(x + row, row_size) / e4m3::kMax, 1e-6f);
    counts += e4m3_encode_multiplied(x + row, codes.data() + row, row_size, 1.0f / scale, rounding);
    e4m3_decode(codes.data() + row, stored + row, row_size);
    multiply_by(stored + row, head_dim, scale);
  }
  return counts;
}

HeadSums::HeadSums(int64_t head_dim, size_t num_layouts)
    : channel_sum(static_cast<size_t>(head_dim)),
      channel_squares(static_cast<size_t>(head_dim)),
      layouts(num_layouts) {}

void HeadSums::add(const float* x, int64_t num_tokens, int64_t sequence, int64_t first_position,
                   const std::vector<RangeLayout>& all, const std::vector<float>& static_scales,
                   Rounding rounding) {
  const auto head_dim = static_cast<int64_t>(channel_sum.size());
  const int64_t n = num_tokens * head_dim;
  tokens += num_tokens;
  amax = std::max(amax, max_abs(x, static_cast<size_t>(n)));
  std::vector<float> largest;
  for (int64_t i = 0; i < n; i += head_dim) {
    largest.push_back(max_abs(x + i, channel_sum.size()));
    for (int64_t c = 0; c < head_dim; ++c) {
      const double value = x[i + c];
      channel_sum[static_cast<size_t>(c)] += value;
      channel_squares[static_cast<size_t>(c)] += value * value;
    }
  }
  magnitudes.add(sequence, first_position, largest);
  std::vector<float> stored(static_cast<size_t>(n));
  std::vector<uint8_t> codes;
  for (size_t l = 0; l < all.size(); ++l) {
    const EncodeCounts counts = store_and_load(all[l], static_scales[l], rounding, x, num_tokens,
                                               head_dim, stored.data(), codes);
    layouts[l].clipped += counts.saturated;
    layouts[l].flushed += counts.flushed;
    for (int64_t i = 0; i < n; ++i) {
      const double error = static_cast<double>(stored[static_cast<size_t>(i)]) - x[i];
      layouts[l].error_squared += error * error;
    }
  }
}

double HeadSums::energy() const {
  double sum = 0;
  for (const double squares : channel_squares) sum += squares;
  return sum;
}

double HeadSums::strongest_channel() const {
  const double all = energy();
  return all == 0 ? 0 : std::ranges::max(channel_squares) / all;
}

double HeadSums::centred_energy() const {
  double sum = 0;
  for (size_t c = 0; c < channel_sum.size(); ++c) {
    const double mean_part = channel_sum[c] * channel_sum[c] / static_cast<double>(tokens);
    sum += std::max(0.0, channel_squares[c] - mean_part);
  }
  return sum;
}

double decibels(double signal, double error) {
  if (error == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / error);
}

}  // namespace kv
