#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evaluate/record.h"
#include "model/tap.h"

namespace kv {

/// How far what a model says moves when its last hidden state is off: mean KLD over positions as a
/// function of the error, found by trying it.
///
/// With h what the head W reads (the final norm's weights g in it) and n a row of random signs, an
/// error of the relative size e turns the logits into z + e |h| / |g| W (g n): as large in h as the
/// normed damage of a layer is in what its next norm gives, so that channels which the norm hides
/// hide here too. Random directions are fixed (kProbes of them), their logits computed once; each
/// position tries kProbesPerPosition of them at every size.
class KldCurve {
 public:
  static constexpr int64_t kProbes = 32, kProbesPerPosition = 2;

  /// Squared relative errors at which the curve is known, ascending.
  static const std::vector<double>& errors();

  /// Adds the positions at `rows`, counted from the tap's first token. The model must be the same
  /// in all calls. Rows that are not finite are passed over.
  void add(const OutputTap& tap, std::span<const int64_t> rows);

  /// "curve"; klds are 0 without positions.
  CurveRecord record() const;

 private:
  void probe(const OutputTap& tap);
  void add_row(std::span<const float> logits, double size);

  std::vector<float> probes_;  // [kProbes, vocab_size]
  double probe_size_ = 0;      // |g|
  std::vector<double> sums_ = std::vector<double>(errors().size());
  int64_t positions_ = 0;
};

}  // namespace kv
