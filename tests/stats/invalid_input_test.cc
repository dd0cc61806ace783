// Wrong input gets one ValueError that names function, argument and value.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kvscale/error.h"
#include "stats/bootstrap.h"
#include "stats/distributions.h"
#include "stats/holm.h"
#include "stats/intervals.h"
#include "stats/line_fit.h"
#include "stats/mcnemar.h"
#include "stats/moments.h"
#include "stats/paired.h"
#include "stats/permutation.h"
#include "stats/representativeness.h"
#include "stats/sample_size.h"
#include "stats/sequential.h"
#include "stats/shift.h"
#include "stats/splitmix64.h"
#include "stats/survival.h"
#include "stats/tango.h"
#include "stats/trend.h"

namespace kv {
namespace {

using Doubles = std::vector<double>;
const double kNan = std::nan("");
const double kInf = std::numeric_limits<double>::infinity();

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "no ValueError";
}

#define EXPECT_VALUE_ERROR(expression, message) \
  EXPECT_EQ(message_of([&] { (void)(expression); }), message)

TEST(InvalidInput, MessagesNameArgumentAndValue) {
  EXPECT_VALUE_ERROR(wilson_interval(3, 0, 1.96),
                     "wilson_interval: n: expected more than 0 and finite, found 0");
  EXPECT_VALUE_ERROR(wilson_interval(21, 20, 1.96),
                     "wilson_interval: successes: expected 0 to n, found 21");
  EXPECT_VALUE_ERROR(tango_statistic({30, 11, 40}, 0),
                     "tango_statistic: losses + gains: expected at most n, found 41");
  EXPECT_VALUE_ERROR(tango_interval({-1, 11, 40}, 1.96),
                     "tango_interval: losses: expected at least 0, found -1");
  EXPECT_VALUE_ERROR(tango_interval({kNan, 11, 40}, 1.96),
                     "tango_interval: losses: expected at least 0, found nan");
  EXPECT_VALUE_ERROR(mcnemar(3, -0.5),
                     "mcnemar: gains: expected at least 0 and finite, found -0.5");
  EXPECT_VALUE_ERROR(holm_adjusted(Doubles{0.1, 1.5}),
                     "holm_adjusted: p: expected 0 to 1, found 1.5");
  EXPECT_VALUE_ERROR(summarize_pairs(Doubles{1, 0}, Doubles{1}),
                     "summarize_pairs: candidate: expected 2 values, as many as control, found 1");
  EXPECT_VALUE_ERROR(summarize_pairs(Doubles{1, kNan}, Doubles{1, 0}),
                     "summarize_pairs: control[1]: expected a finite number, found nan");
  EXPECT_VALUE_ERROR(normal_quantile(1),
                     "normal_quantile: p: expected more than 0 and less than 1, found 1");
}

TEST(InvalidInput, EveryFunctionRefuses) {
  const Doubles one{1}, two{0, 1}, three{1, 2, 3}, empty, bad{1, kNan};
  const std::vector<int64_t> same_cluster{4, 4};
  const std::vector<size_t> no_units{0}, units{2};
  PairedSummary graded;
  graded.n = graded.clusters = 10;
  const std::vector<std::function<void()>> calls{
      [&] { normal_cdf(kNan); },
      [&] { normal_quantile(0); },
      [&] { normal_quantile(kNan); },
      [&] { student_t_cdf(1, 0); },
      [&] { student_t_cdf(kNan, 3); },
      [&] { student_t_quantile(0.5, -1); },
      [&] { student_t_quantile(1.5, 3); },
      [&] { chi_square_upper(-1, 3); },
      [&] { chi_square_upper(1, kInf); },
      [&] { incomplete_beta(0, 1, 0.5); },
      [&] { incomplete_beta(1, 1, 1.1); },
      [&] { binomial_upper(1, -1, 0.5); },
      [&] { binomial_upper(kNan, 1, 0.5); },
      [&] { binomial_upper(1, 2, -0.1); },
      [&] { log_choose(3, 4); },
      [&] { log_binomial_pmf(1, 3, 0); },
      [&] { log_binomial_upper(1, -3, 0.5); },
      [&] { critical_z(1); },
      [&] { critical_t(0.95, 0); },
      [&] { symmetric_interval(0, -1, 2); },
      [&] { wilson_interval(1, 2, kNan); },
      [&] { mean_estimate(one); },
      [&] { mean_estimate(bad); },
      [&] {
        correlation(two, Doubles{1, 1});
      },
      [&] { clustered_error(two, same_cluster); },
      [&] { clustered_error(two, {}); },
      [&] { design_effect(-1, 1); },
      [&] { percentile(empty, 0.5); },
      [&] { percentile(two, 1.01); },
      [&] { percentile(bad, 0.5); },
      [&] { mcnemar(kNan, 1); },
      [&] {
        tango_interval({1, 1, 0}, 1.96);
      },
      [&] {
        tango_interval({1, 1, 5}, -1);
      },
      [&] {
        tango_statistic({1, 1, 5}, 1);
      },
      [&] {
        tango_loss_probability({1, 1, 5}, kNan);
      },
      [&] { summarize_pairs(one, one); },
      [&] {
        recovery_ratio(Doubles{0, 0}, two);
      },
      [&] {
        recovery_ratio(two, Doubles{0, 0});
      },
      [&] { Shift::continuous(0.1, 0); },
      [&] { Shift::continuous(0.1, 0.1, 0); },
      [&] {
        Shift::binary({3, 3, 5});
      },
      [&] {
        Shift::binary({1, 1, 5}).bound(-1);
      },
      [&] {
        margin_test(Shift::binary({1, 1, 5}), 0);
      },
      [&] { pooled_shift({}); },
      [&] {
        pooled_shift({&graded, 1});
      },
      [&] {
        weighted_shift({&graded, 1}, empty);
      },
      [&] {
        weighted_shift({&graded, 1}, Doubles{0});
      },
      [&] {
        bucket_verdict({1, 0}, 0.02);
      },
      [&] {
        bucket_verdict({kNan, 0}, 0.02);
      },
      [&] {
        bucket_verdict({0, 1}, -0.02);
      },
      [&] { holm_adjusted(bad); },
      [&] { bootstrap_ratio(two, two, no_units, {}); },
      [&] { bootstrap_ratio(two, one, units, {}); },
      [&] { bootstrap_ratio(three, three, units, {}); },
      [&] { bootstrap_ratio(two, two, units, {.replicates = 0}); },
      [&] { bootstrap_ratio(two, two, units, {.threads = 0}); },
      [&] { bootstrap_ratio(two, two, {}, {}); },
      [&] { summarize_bootstrap(bad, 0.95); },
      [&] { summarize_bootstrap(two, 1); },
      [&] { permutation_trend(two, one); },
      [&] {
        permutation_trend(Doubles{1, 1}, two);
      },
      [&] { sign_flip_test(Doubles(21, 0.5)); },
      [&] {
        weighted_trend(two, two, Doubles{1, 0});
      },
      [&] {
        weighted_trend(Doubles{1, 1}, two, Doubles{1, 1});
      },
      [&] { weighted_trend(one, one, one); },
      [&] {
        heterogeneity(two, Doubles{1, -1});
      },
      [&] { sign_test(bad); },
      [&] {
        length_curve_auc(Doubles{2, 1}, two);
      },
      [&] { shift_type_of_means(two, two, 0); },
      [&] { spent_error(0, 0.05); },
      [&] { look_bounds(empty, 0.05); },
      [&] {
        look_bounds(Doubles{0.5, 0.5}, 0.05);
      },
      [&] {
        look_bounds(Doubles{0.5, 1.1}, 0.05);
      },
      [&] {
        look_bounds(Doubles{0.5, 1}, 1);
      },
      [&] {
        crossing_probabilities(Doubles{0.5, 1}, Doubles{2});
      },
      [&] {
        crossing_probabilities(Doubles{0.5, 1}, Doubles{2, 0});
      },
      [&] { non_inferiority_n(0, 0.02, 0, 0.025, 0.9); },
      [&] { non_inferiority_n(0.05, 0.02, -0.02, 0.025, 0.9); },
      [&] { non_inferiority_n(0.0001, 0.02, 0.02, 0.025, 0.9); },
      [&] { non_inferiority_power(0, 0.05, 0.02, 0, 0.025); },
      [&] { equivalence_n(0.1, 0, 0.05, 0.8); },
      [&] { detection_n(0.1, 0, 0.05, 0.8); },
      [&] { detectable_difference(0.1, -3, 0.05, 0.8); },
      [&] { zero_flip_n(1, 0.025); },
      [&] { power_per_bucket(0.9, 0); },
      [&] { summarize_divergence({}); },
      [&] { fit_line(two, two); },
      [&] {
        fit_line(Doubles{1, 1, 1}, three);
      },
      [&] {
        break_even({kNan, 1}, {1, 1});
      },
      [&] { exceedance_p(0, 4, 1); },
      [&] { exceedance_p(5, 4, 5); },
      [&] {
        total_variation(two, Doubles{0, 0});
      },
      [&] {
        total_variation(two, Doubles{2, -1});
      },
      [&] { ks_statistic(empty, two); },
      [&] { ks_critical_95(0, 1); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string message = message_of(calls[i]);
    EXPECT_NE(message.find(": expected "), std::string::npos) << "call " << i << ": " << message;
    EXPECT_NE(message.find(", found "), std::string::npos) << "call " << i << ": " << message;
  }
}

/// Numbers where functions break: zeros, tiny, huge, infinite, NaN, and ordinary ones.
double nasty_number(SplitMix64& random) {
  switch (random.below(10)) {
    case 0:
      return 0;
    case 1:
      return kNan;
    case 2:
      return random.below(2) == 0 ? kInf : -kInf;
    case 3:
      return 1e308;
    case 4:
      return 1e-310;
    case 5:
      return -random.uniform();
    case 6:
      return random.uniform();
    case 7:
      return std::floor(random.uniform() * 1000);
    case 8:
      return std::exp(40 * random.uniform() - 20);
    default:
      return 1;
  }
}

TEST(InvalidInput, AnyNumbersEitherWorkOrThrowKvErrors) {
  SplitMix64 random(31);
  int worked = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const double a = nasty_number(random), b = nasty_number(random), c = nasty_number(random);
    const std::vector<std::function<double()>> calls{
        [=] { return normal_quantile(a); },
        [=] { return student_t_cdf(a, b); },
        [=] { return student_t_quantile(a, b); },
        [=] { return chi_square_upper(a, b); },
        [=] { return incomplete_beta(a, b, c); },
        [=] { return binomial_upper(a, b, c); },
        [=] {
          return tango_interval({a, b, c}, 1.96).lo;
        },
        [=] { return wilson_interval(a, b, c).lo; },
        [=] { return mcnemar(a, b).midp_two_sided; },
        [=] { return Shift::continuous(a, b, c).interval(1.96).lo; }};
    const size_t which = random.below(calls.size());
    const auto& call = calls[which];
    try {
      EXPECT_FALSE(std::isnan(call())) << "call " << which << ": " << a << ' ' << b << ' ' << c;
      ++worked;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(worked, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace kv
