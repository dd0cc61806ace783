#include "evaluate/control_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "evaluate/index.h"

namespace kv {
namespace {

// Rows of logits held at a time: 16 of a large vocabulary are 16 MB.
constexpr int64_t kRowsPerCall = 16;

}  // namespace

double entropy_of(std::span<const float> logits) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float x : logits) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, double{x});
  }
  double sum = 0, weighted = 0;
  for (const float x : logits) {
    const double below = x - largest, weight = std::exp(below);
    sum += weight;
    weighted += weight * below;
  }
  return std::log(sum) - weighted / sum;
}

void ControlEntropy::add(const OutputTap& tap, std::span<const int64_t> rows) {
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
      const double entropy =
          entropy_of(std::span(logits).subspan(r * index(tap.vocab_size), index(tap.vocab_size)));
      if (std::isnan(entropy)) continue;
      sum_ += entropy;
      ++positions_;
    }
  }
}

EntropyRecord ControlEntropy::record() const {
  return {"entropy", positions_ > 0 ? sum_ / static_cast<double>(positions_) : 0, positions_};
}

}  // namespace kv
