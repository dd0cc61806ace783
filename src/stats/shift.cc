#include "stats/shift.h"

#include <algorithm>
#include <cmath>

#include "stats/check.h"
#include "stats/distributions.h"

namespace kv {
namespace {

double square(double x) { return x * x; }

PairedCounts effective_counts(const PairedSummary& bucket) {
  return {static_cast<double>(bucket.losses) / bucket.deff,
          static_cast<double>(bucket.gains) / bucket.deff,
          static_cast<double>(bucket.n) / bucket.deff};
}

// Half a flip: what a bucket without any flip may hide, as a variance of the mean.
double variance_floor(double n) { return 0.5 / square(n); }

void require_buckets(const char* function, std::span<const PairedSummary> buckets) {
  require(!buckets.empty(), function, "buckets", 0, "at least 1");
}

}  // namespace

Shift Shift::binary(const PairedCounts& counts, double df) {
  require_counts("Shift::binary", counts);
  require(df > 0, "Shift::binary", "df", df, "more than 0");
  Shift out;
  out.counts_ = counts;
  out.estimate_ = (counts.gains - counts.losses) / counts.n;
  out.df_ = df;
  return out;
}

Shift Shift::continuous(double diff, double se, double df) {
  require(std::isfinite(diff), "Shift::continuous", "diff", diff, "a finite number");
  require(se > 0 && std::isfinite(se), "Shift::continuous", "se", se, "more than 0 and finite");
  require(df > 0, "Shift::continuous", "df", df, "more than 0");
  Shift out;
  out.estimate_ = diff;
  out.se_ = se;
  out.df_ = df;
  return out;
}

double Shift::statistic(double delta) const {
  if (se_ == 0) return tango_statistic(counts_, delta);
  require(std::isfinite(delta), "Shift::statistic", "delta", delta, "a finite number");
  return (estimate_ - delta) / se_;
}

double Shift::p_above(double delta) const { return student_t_upper(statistic(delta), df_); }
double Shift::p_below(double delta) const { return student_t_cdf(statistic(delta), df_); }

double Shift::bound(double z_bound) const {
  require(z_bound >= 0 && z_bound < 38, "Shift::bound", "z_bound", z_bound, "0 to 38");
  return std::isinf(df_) ? z_bound : -student_t_quantile(normal_upper(z_bound), df_);
}

Interval Shift::interval(double z_bound) const {
  if (se_ == 0) return tango_interval(counts_, bound(z_bound));
  return symmetric_interval(estimate_, se_, bound(z_bound));
}

Shift bucket_shift(const PairedSummary& bucket) {
  const double df_clusters = static_cast<double>(bucket.clusters) - 1;
  const double df_binary = bucket.is_clustered ? df_clusters : Shift::kNormal;
  if (bucket.is_binary || bucket.losses + bucket.gains == 0) {
    return Shift::binary(effective_counts(bucket), df_binary);
  }
  return Shift::continuous(bucket.diff, std::sqrt(shift_variance(bucket)), df_clusters);
}

Shift pooled_shift(std::span<const PairedSummary> buckets) {
  require_buckets("pooled_shift", buckets);
  PairedCounts sum;
  double clustered = 0, iid = 0, df = 0;
  bool is_clustered = false;
  for (const PairedSummary& bucket : buckets) {
    require(bucket.is_binary, "pooled_shift", "is_binary", bucket.is_binary, "true");
    const double n = static_cast<double>(bucket.n);
    sum.losses += static_cast<double>(bucket.losses);
    sum.gains += static_cast<double>(bucket.gains);
    sum.n += n;
    clustered += square(n * bucket.se_cr1);
    iid += square(n * bucket.se_iid);
    df += static_cast<double>(bucket.clusters) - 1;
    is_clustered |= bucket.is_clustered;
  }
  const double deff = iid > 0 ? std::max(1.0, clustered / iid) : 1;
  return Shift::binary({sum.losses / deff, sum.gains / deff, sum.n / deff},
                       is_clustered ? df : Shift::kNormal);
}

double shift_variance(const PairedSummary& bucket) {
  if (!bucket.is_binary) {
    return std::max(square(bucket.se_cr1), variance_floor(static_cast<double>(bucket.n)));
  }
  const PairedCounts p = effective_counts(bucket);
  return std::max((p.losses + p.gains) / square(p.n) - square(bucket.diff) / p.n,
                  variance_floor(p.n));
}

Shift weighted_shift(std::span<const PairedSummary> buckets, std::span<const double> weights) {
  require_buckets("weighted_shift", buckets);
  require_same_size("weighted_shift", "weights", weights.size(), "buckets", buckets.size());
  double total = 0;
  for (const double w : weights) {
    require(w > 0 && std::isfinite(w), "weighted_shift", "weight", w, "more than 0 and finite");
    total += w;
  }
  double diff = 0, variance = 0, spread = 0;
  bool needs_t = false;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const double w = weights[i] / total;
    const double v = w * w * shift_variance(buckets[i]);
    diff += w * buckets[i].diff;
    variance += v;
    spread += v * v / (static_cast<double>(buckets[i].clusters) - 1);
    needs_t |= buckets[i].is_clustered || !buckets[i].is_binary;
  }
  const double df = needs_t ? variance * variance / spread : Shift::kNormal;
  return Shift::continuous(diff, std::sqrt(variance), df);
}

MarginTest margin_test(const Shift& shift, double delta) {
  require_open_unit("margin_test", "delta", delta);
  return {shift.statistic(-delta), shift.p_above(-delta), shift.statistic(delta),
          shift.p_below(delta), shift.p_below(-delta)};
}

BucketVerdict bucket_verdict(const Interval& interval, double delta) {
  require(interval.lo <= interval.hi, "bucket_verdict", "interval.lo", interval.lo, "at most hi");
  require_open_unit("bucket_verdict", "delta", delta);
  if (interval.hi < -delta) return BucketVerdict::kMaterialLoss;
  const bool inside = interval.lo > -delta;
  if (interval.hi < 0) {
    return inside ? BucketVerdict::kTolerableShift : BucketVerdict::kLossUnsized;
  }
  if (!inside) return BucketVerdict::kUnresolved;
  return interval.hi < delta ? BucketVerdict::kEquivalent : BucketVerdict::kNonInferior;
}

bool is_non_inferior(BucketVerdict verdict) {
  return verdict == BucketVerdict::kEquivalent || verdict == BucketVerdict::kNonInferior ||
         verdict == BucketVerdict::kTolerableShift;
}

std::string_view name(BucketVerdict verdict) {
  switch (verdict) {
    case BucketVerdict::kEquivalent:
      return "EQUIVALENT";
    case BucketVerdict::kNonInferior:
      return "NON_INFERIOR";
    case BucketVerdict::kTolerableShift:
      return "TOLERABLE_SHIFT";
    case BucketVerdict::kMaterialLoss:
      return "MATERIAL_LOSS";
    case BucketVerdict::kLossUnsized:
      return "LOSS_UNSIZED";
    case BucketVerdict::kUnresolved:
      return "UNRESOLVED";
  }
  return "?";
}

}  // namespace kv
