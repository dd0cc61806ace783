#pragma once

#include <cstdint>
#include <span>

#include "evaluate/record.h"
#include "model/tap.h"

namespace kv {

/// How unsure the control is of what comes next: the entropy of its answers, mean over positions.
/// What a damaged cache can change hangs on it (predicted_kld.h).
class ControlEntropy {
 public:
  /// Adds the positions at `rows`, counted from the tap's first token. Rows of logits that are not
  /// finite are passed over.
  void add(const OutputTap& tap, std::span<const int64_t> rows);

  /// "entropy"; 0 nats without positions.
  EntropyRecord record() const;

 private:
  double sum_ = 0;
  int64_t positions_ = 0;
};

/// Entropy in nats of the softmax of a row; NaN when a logit is not finite.
double entropy_of(std::span<const float> logits);

}  // namespace kv
