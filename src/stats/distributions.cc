#include "stats/distributions.h"

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "stats/check.h"

namespace kv {
namespace {

namespace bm = boost::math;

// A quantile beyond the largest double is infinity, not an exception of another library.
using Policy = bm::policies::policy<bm::policies::overflow_error<bm::policies::ignore_error>>;
using StudentT = bm::students_t_distribution<double, Policy>;
using ChiSquared = bm::chi_squared_distribution<double, Policy>;
using Normal = bm::normal_distribution<double, Policy>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void require_df(const char* function, double df) {
  require(df > 0, function, "df", df, "more than 0");
}

// ln n! in 80 bits: in 64 bits the three factorials of a binomial coefficient of 1e6 would cancel
// to an absolute error of 1e-9.
long double log_factorial(int64_t n) { return bm::lgamma(static_cast<long double>(n) + 1); }

/// ln P(X = k) for a success probability p in 80 bits: 1 - p of a small p is then a p as well.
long double log_pmf(int64_t k, int64_t n, long double p) {
  const long double choose = log_factorial(n) - log_factorial(k) - log_factorial(n - k);
  return choose + static_cast<long double>(k) * std::log(p) +
         static_cast<long double>(n - k) * std::log1p(-p);
}

/// ln sum of P(X = i), i = k .. n, for k above the mean: the terms fall from the first one on.
double log_falling_tail(int64_t k, int64_t n, long double p) {
  const long double odds = p / (1 - p);
  long double term = 1, sum = 1;
  for (int64_t i = k; i < n && term > sum * 1e-20L; ++i) {
    term *= odds * static_cast<long double>(n - i) / static_cast<long double>(i + 1);
    sum += term;
  }
  return static_cast<double>(log_pmf(k, n, p) + std::log(sum));
}

}  // namespace

double normal_cdf(double x) {
  require(!std::isnan(x), "normal_cdf", "x", x, "a number");
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

double normal_upper(double x) { return normal_cdf(-x); }

double normal_quantile(double p) {
  require_open_unit("normal_quantile", "p", p);
  return bm::quantile(Normal(), p);
}

double student_t_cdf(double t, double df) {
  require(!std::isnan(t), "student_t_cdf", "t", t, "a number");
  require_df("student_t_cdf", df);
  if (std::isinf(df)) return normal_cdf(t);
  if (std::isinf(t)) return t > 0 ? 1 : 0;
  return bm::cdf(StudentT(df), t);
}

double student_t_upper(double t, double df) { return student_t_cdf(-t, df); }

double student_t_quantile(double p, double df) {
  require_open_unit("student_t_quantile", "p", p);
  require_df("student_t_quantile", df);
  return std::isinf(df) ? normal_quantile(p) : bm::quantile(StudentT(df), p);
}

double chi_square_upper(double x, double df) {
  require(x >= 0, "chi_square_upper", "x", x, "at least 0");
  require(df > 0 && std::isfinite(df), "chi_square_upper", "df", df, "more than 0 and finite");
  return std::isinf(x) ? 0 : bm::cdf(bm::complement(ChiSquared(df), x));
}

double incomplete_beta(double a, double b, double x) {
  require(a > 0 && std::isfinite(a), "incomplete_beta", "a", a, "more than 0 and finite");
  require(b > 0 && std::isfinite(b), "incomplete_beta", "b", b, "more than 0 and finite");
  require_probability("incomplete_beta", "x", x);
  return bm::ibeta(a, b, x, Policy());
}

double binomial_upper(double k, double n, double p) {
  require(std::isfinite(k), "binomial_upper", "k", k, "a finite number");
  require(n >= 0 && std::isfinite(n), "binomial_upper", "n", n, "at least 0 and finite");
  require_probability("binomial_upper", "p", p);
  if (k <= 0) return 1;
  if (k >= n + 1) return 0;
  return incomplete_beta(k, n - k + 1, p);
}

double log_choose(int64_t n, int64_t k) {
  require(n >= 0, "log_choose", "n", static_cast<double>(n), "at least 0");
  require(k >= 0 && k <= n, "log_choose", "k", static_cast<double>(k), "0 to n");
  return static_cast<double>(log_factorial(n) - log_factorial(k) - log_factorial(n - k));
}

double log_binomial_pmf(int64_t k, int64_t n, double p) {
  require(n >= 0, "log_binomial_pmf", "n", static_cast<double>(n), "at least 0");
  require(k >= 0 && k <= n, "log_binomial_pmf", "k", static_cast<double>(k), "0 to n");
  require_open_unit("log_binomial_pmf", "p", p);
  return static_cast<double>(log_pmf(k, n, p));
}

double log_binomial_upper(int64_t k, int64_t n, double p) {
  require(n >= 0, "log_binomial_upper", "n", static_cast<double>(n), "at least 0");
  require_open_unit("log_binomial_upper", "p", p);
  if (k <= 0) return 0;
  if (k > n) return -kInfinity;
  const double mean = static_cast<double>(n) * p;
  if (static_cast<double>(k) > mean) return log_falling_tail(k, n, p);
  // Below the mean the other tail is the small one: P(X <= k - 1) = P(n - X >= n - k + 1).
  return std::log1p(-std::exp(log_falling_tail(n - k + 1, n, 1 - static_cast<long double>(p))));
}

}  // namespace kv
