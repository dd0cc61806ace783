#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "stats/intervals.h"
#include "stats/paired.h"
#include "stats/tango.h"

namespace kv {

/// What the data say about Delta = mean(candidate - control): a statistic that falls as the
/// hypothesised Delta grows, and the interval of all Delta it does not reject. Binary scores use
/// Tango's T, others (diff - Delta) / se.
///
/// Bounds are given as critical values of the standard normal (1.96, or a look's bound); with
/// finite df they are turned into the t value of the same one-sided level.
class Shift {
 public:
  static constexpr double kNormal = std::numeric_limits<double>::infinity();

  /// Counts already divided by the design effect; df = clusters - 1, or kNormal for independent
  /// pairs.
  static Shift binary(const PairedCounts& counts, double df = kNormal);

  /// Mean difference with its standard error, se > 0.
  static Shift continuous(double diff, double se, double df = kNormal);

  double estimate() const { return estimate_; }
  double df() const { return df_; }
  /// Counts after the design effect; all zero for a continuous shift.
  const PairedCounts& counts() const { return counts_; }

  /// T or t at the hypothesised value; -1 < delta < 1 for a binary shift.
  double statistic(double delta) const;
  /// One-sided p of "Delta > delta" and of "Delta < delta".
  double p_above(double delta) const;
  double p_below(double delta) const;
  /// The critical value at df with the one-sided level of z_bound >= 0.
  double bound(double z_bound) const;
  Interval interval(double z_bound) const;

 private:
  Shift() = default;
  PairedCounts counts_;
  double estimate_ = 0;
  double se_ = 0;  // 0 marks a binary shift
  double df_ = kNormal;
};

/// The shift of one bucket. Binary scores: b, c and n divided by the design effect, t with
/// clusters - 1 degrees of freedom when clustered, else normal. Other scores (in [0, 1]): diff and
/// CR1 error with clusters - 1 degrees of freedom. Two guards against an error of zero: without any
/// difference the counts 0, 0, n stand in (no score in [0, 1] can have hidden a larger shift), and
/// an error never falls below sqrt(0.5)/n, half a flip.
Shift bucket_shift(const PairedSummary& bucket);

/// All buckets of a binary score pooled: b, c, n added up and divided by the common design effect
/// max(1, sum n_b^2 CR1_b^2 / sum n_b^2 se_iid_b^2); t with sum (clusters_b - 1) degrees of freedom
/// when clustered. A bucket's weight is its n: for equal traffic shares the n must be equal. Throws
/// ValueError if a bucket is not binary or there is none.
Shift pooled_shift(std::span<const PairedSummary> buckets);

/// sum w_b diff_b with se^2 = sum w_b^2 v_b; v_b = max((b + c)/n^2 - diff_b^2/n, 0.5/n^2) for a
/// binary bucket (counts after the design effect), max(CR1_b^2, 0.5/n^2) for another. Weights are
/// traffic shares > 0 in any unit. Degrees of freedom: kNormal if all buckets are binary and not
/// clustered, else Satterthwaite 1946.
Shift weighted_shift(std::span<const PairedSummary> buckets, std::span<const double> weights);

/// v_b of weighted_shift.
double shift_variance(const PairedSummary& bucket);

/// Statistics and one-sided p-values at the margins, delta > 0 (Schuirmann 1987).
struct MarginTest {
  double z_ni = 0;             // at -delta: large means not worse than the margin
  double p_ni = 1;             // of Delta > -delta
  double z_equiv_upper = 0;    // at +delta
  double p_equiv_upper = 1;    // of Delta < +delta
  double p_material_loss = 1;  // of Delta < -delta
};
MarginTest margin_test(const Shift& shift, double delta);

enum class BucketVerdict {
  kEquivalent,      // lo > -delta and hi < delta
  kNonInferior,     // lo > -delta
  kTolerableShift,  // hi < 0 and lo > -delta: a real loss inside the margin
  kMaterialLoss,    // hi < -delta
  kLossUnsized,     // hi < 0 and lo <= -delta: a real loss of unknown size
  kUnresolved,
};

/// The verdict of an interval at a margin delta > 0. A tolerable shift is also equivalent; the
/// narrower name wins.
BucketVerdict bucket_verdict(const Interval& interval, double delta);

/// True for kEquivalent, kNonInferior and kTolerableShift. "No significant difference" is none.
bool is_non_inferior(BucketVerdict verdict);

/// "EQUIVALENT", "NON_INFERIOR", "TOLERABLE_SHIFT", "MATERIAL_LOSS", "LOSS_UNSIZED", "UNRESOLVED".
std::string_view name(BucketVerdict verdict);

}  // namespace kv
