#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace kv {

/// How the largest magnitude of a token's K or V changes along a sequence.
struct PositionSlope {
  double slope = 0;  // mean over sequences, log2 of the magnitude per doubling of the position
  double p = 1;      // one-sided, that it does not grow; 1 with fewer than two sequences
};

/// The largest magnitude of every token of one KV head's K or V, over all sequences (method 2.1 and
/// 6.4, TOKEN_DRIFT).
class TokenMagnitudes {
 public:
  /// `largest` are values of consecutive tokens, the first of them at `first_position`, each as
  /// BF16 has it. Tokens of zeros count for spread() alone.
  void add(int64_t sequence, int64_t first_position, const std::vector<float>& largest);

  /// The sequence's number may be used again.
  void end_sequence(int64_t sequence);

  /// The 99th percentile over the median; 1 without tokens, infinite over a median of 0.
  double spread() const;

  /// A line through log2(magnitude) over log2(position + 1) for every sequence, then Student's test
  /// of their slopes: tokens of one sequence are not independent of each other, sequences are.
  PositionSlope slope() const;

 private:
  struct Sums {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    double slope() const;
    bool has_slope() const;
  };
  std::vector<uint16_t> all_;     // BF16
  std::map<int64_t, Sums> open_;  // by sequence
  std::vector<double> finished_;  // slopes of ended sequences
};

}  // namespace kv
