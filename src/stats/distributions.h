#pragma once

#include <cstdint>

namespace kv {

// Distribution functions, relative error about 1e-12 also far out in the tails. "Upper" is
// P(X > x), computed directly: 1 - cdf(x) has no digits left beyond 8 standard deviations.
// Arguments outside the stated range, and NaN, throw ValueError.

/// Standard normal: P(Z <= x) = erfc(-x / sqrt 2) / 2. x may be infinite.
double normal_cdf(double x);

/// P(Z > x) = normal_cdf(-x).
double normal_upper(double x);

/// z with P(Z <= z) = p, 0 < p < 1. For an upper tail q use -normal_quantile(q).
double normal_quantile(double p);

/// Student t with df > 0 degrees of freedom (fractions allowed, infinity is the normal): P(T <= t).
double student_t_cdf(double t, double df);

/// P(T > t).
double student_t_upper(double t, double df);

/// t with P(T <= t) = p, 0 < p < 1.
double student_t_quantile(double p, double df);

/// Chi-square with df > 0: P(X > x), x >= 0.
double chi_square_upper(double x, double df);

/// Regularised incomplete beta I_x(a, b), a, b > 0, 0 <= x <= 1.
double incomplete_beta(double a, double b, double x);

/// P(X >= k), X ~ Bin(n, p), through I_p(k, n - k + 1), which continues it to fractional k and n.
/// 0 <= p <= 1, n >= 0; k <= 0 gives 1 and k > n gives 0. At k in (n, n + 1) the continuation
/// would still be positive; it is used there too, so that the function stays continuous in k.
double binomial_upper(double k, double n, double p);

/// ln C(n, k), 0 <= k <= n, absolute error about 1e-12 up to n = 1e6.
double log_choose(int64_t n, int64_t k);

/// ln P(X = k), X ~ Bin(n, p), 0 <= k <= n, 0 < p < 1.
double log_binomial_pmf(int64_t k, int64_t n, double p);

/// ln P(X >= k), summed term by term in log space: exact where the probability itself underflows.
/// n up to 1e6, 0 < p < 1. k <= 0 gives 0, k > n gives -infinity.
double log_binomial_upper(int64_t k, int64_t n, double p);

}  // namespace kv
