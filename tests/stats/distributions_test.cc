#include "stats/distributions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace kv {
namespace {

using Arguments = std::vector<double>;
using Function = std::function<double(const Arguments&)>;

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all{
      {"normal_cdf", [](const Arguments& a) { return normal_cdf(a[0]); }},
      {"normal_quantile", [](const Arguments& a) { return normal_quantile(a[0]); }},
      {"student_t_upper", [](const Arguments& a) { return student_t_upper(a[0], a[1]); }},
      {"student_t_quantile", [](const Arguments& a) { return student_t_quantile(a[0], a[1]); }},
      {"chi_square_upper", [](const Arguments& a) { return chi_square_upper(a[0], a[1]); }},
      {"binomial_upper", [](const Arguments& a) { return binomial_upper(a[0], a[1], a[2]); }},
      {"log_binomial_upper", [](const Arguments& a) {
         return log_binomial_upper(static_cast<int64_t>(a[0]), static_cast<int64_t>(a[1]), a[2]);
       }}};
  return all;
}

// A relative error of 1e-12 in the value, plus what the last bit of the argument is worth: far out,
// ln of a tail changes by x^2 times the argument's relative error (x^2 < 1500, 1500 * 2^-53 <
// 2e-13).
constexpr double kRelative = 1e-12;

TEST(Distributions, EqualTheRecordedGrid) {
  std::ifstream file(KV_SOURCE_DIR "/tests/golden/stats/distributions.txt");
  std::map<std::string, int> seen;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string function;
    words >> function;
    Arguments numbers;
    for (std::string word; words >> word;) numbers.push_back(std::strtod(word.c_str(), nullptr));
    ASSERT_GE(numbers.size(), 2u) << line;
    const double expected = numbers.back();
    numbers.pop_back();
    const double found = functions().at(function)(numbers);
    EXPECT_NEAR(found, expected, kRelative * std::abs(expected) + 1e-300) << line;
    ++seen[function];
  }
  EXPECT_EQ(seen.size(), functions().size());
  for (const auto& [function, count] : seen) EXPECT_GE(count, 6) << function;
}

TEST(Distributions, QuantilesUndoTheirDistribution) {
  for (double p = 1e-14; p < 1; p *= 1.9) {
    EXPECT_NEAR(normal_cdf(normal_quantile(p)), p, 1e-12 * p);
    for (const double df : {1.0, 4.5, 30.0, 99.0, 1e7}) {
      EXPECT_NEAR(student_t_cdf(student_t_quantile(p, df), df), p, 1e-10 * p) << p << ' ' << df;
    }
  }
}

TEST(Distributions, StudentTApproachesTheNormal) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double x : {-5.0, -1.96, 0.0, 0.3, 4.0}) {
    EXPECT_EQ(student_t_cdf(x, infinity), normal_cdf(x));
    // The leading difference is (x + x^3) phi(x) / (4 df) < 0.3 / df.
    EXPECT_NEAR(student_t_cdf(x, 1e6), normal_cdf(x), 0.3e-6);
  }
  EXPECT_EQ(student_t_quantile(0.975, infinity), normal_quantile(0.975));
  EXPECT_EQ(student_t_cdf(infinity, 3), 1);
  EXPECT_EQ(student_t_cdf(-infinity, 3), 0);
}

TEST(Distributions, BinomialTailIsTheSumOfItsTerms) {
  for (const int64_t n : {1, 2, 7, 40}) {
    for (const double p : {0.5, 0.03, 0.8}) {
      double sum = 0;
      for (int64_t k = n; k >= 0; --k) {
        sum += std::exp(log_binomial_pmf(k, n, p));
        const double real_k = static_cast<double>(k), real_n = static_cast<double>(n);
        EXPECT_NEAR(std::exp(log_binomial_upper(k, n, p)), sum, 1e-13) << n << ' ' << k << ' ' << p;
        EXPECT_NEAR(binomial_upper(real_k, real_n, p), sum, 1e-13) << n << ' ' << k << ' ' << p;
      }
      EXPECT_EQ(log_binomial_upper(n + 1, n, p), -std::numeric_limits<double>::infinity());
    }
  }
}

TEST(Distributions, AllHeadsOfAMillionDoesNotUnderflow) {
  EXPECT_NEAR(log_binomial_upper(1000000, 1000000, 0.5), -1e6 * std::log(2), 1e-9);
  EXPECT_NEAR(log_choose(1000000, 1), std::log(1e6), 1e-12);
}

TEST(Distributions, ContinuedTailFallsSmoothlyBetweenTheIntegers) {
  double last = 1;
  for (double k = 0.05; k < 21; k += 0.05) {
    const double tail = binomial_upper(k, 20, 0.5);
    EXPECT_LT(tail, last) << k;
    last = tail;
  }
  EXPECT_EQ(binomial_upper(0, 20, 0.5), 1);
  EXPECT_EQ(binomial_upper(21, 20, 0.5), 0);
}

}  // namespace
}  // namespace kv
