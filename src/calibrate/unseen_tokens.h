#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "model/tap.h"

namespace kv {

/// A token id of the evaluation that the calibration never fed, and what its keys and values are.
struct UnseenToken {
  int32_t id = 0;
  int64_t positions = 0;  // where it stands
  float k_amax = 0, v_amax = 0;
  int64_t clipped = 0;  // of its K and V values, beyond 448 times the layer's scale
};

/// Ids of `tokens` that `source` does not list, ascending; none when the source lists none at all
/// (it does not know).
std::vector<int32_t> unseen_ids(const CalibrationSource& source, std::span<const int32_t> tokens);

/// Watches a control pass at the positions of some token ids, under per-tensor scales.
class UnseenTokenObserver : public AttentionObserver {
 public:
  /// `ids` ascending. The calibration must outlive the observer.
  UnseenTokenObserver(const Calibration& calibration, const std::vector<int32_t>& ids);

  /// The tokens of the sequence whose taps come next, which outlive them.
  void begin(std::span<const int32_t> tokens) { tokens_ = tokens; }

  void on_attention(const AttentionTap& tap) override;

  /// Most clipped first, then by the largest magnitude.
  std::vector<UnseenToken> worst_first() const;

 private:
  UnseenToken* watched(int32_t id);

  ScaleTable scales_;
  std::span<const int32_t> tokens_;
  std::vector<UnseenToken> found_;  // ascending by id
  std::vector<float> wide_;
};

/// "3 token ids of the prompts were never calibrated on; 12 of their values clip under one scale
/// per layer: 17 (K up to 560, V up to 3.1, 12 clipped), ...", of the worst five; empty without
/// any.
std::string unseen_text(std::span<const UnseenToken> worst_first);

}  // namespace kv
