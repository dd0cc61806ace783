#include "calibrate/representative.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kvscale/error.h"
#include "stats/holm.h"
#include "stats/representativeness.h"

namespace kv {
namespace {

void count_exceeding(const EvaluatedAmax& one, Exceedance& test) {
  const float amax =
      one.amax[static_cast<size_t>(2 * test.layer + static_cast<int64_t>(test.side))];
  test.evaluated_amax = std::max(test.evaluated_amax, amax);
  if (amax <= test.calibrated_amax) return;
  ++test.exceeding;
  if (std::ranges::find(test.buckets, one.bucket) == test.buckets.end()) {
    test.buckets.push_back(one.bucket);
  }
}

}  // namespace

std::vector<float> largest_of_heads(std::span<const float> amax, int64_t num_kv_heads) {
  if (num_kv_heads < 1 || std::ssize(amax) % num_kv_heads != 0) {
    throw ValueError(fmt::format("exceedance: kv_heads: expected a divisor of {} values, found {}",
                                 amax.size(), num_kv_heads));
  }
  const auto heads = static_cast<size_t>(num_kv_heads);
  std::vector<float> out;
  for (size_t i = 0; i + heads <= amax.size(); i += heads) {
    out.push_back(*std::ranges::max_element(amax.subspan(i, heads)));
  }
  return out;
}

std::vector<Exceedance> test_exceedance(std::span<const float> calibrated_amax, int64_t calibrated,
                                        std::span<const EvaluatedAmax> evaluated) {
  std::vector<Exceedance> out;
  if (evaluated.empty()) return out;
  for (const EvaluatedAmax& one : evaluated) {
    if (one.amax.size() == calibrated_amax.size()) continue;
    throw ValueError(fmt::format("exceedance: expected amax of {} layers' sides, found {}",
                                 calibrated_amax.size(), one.amax.size()));
  }
  std::vector<double> p_values;
  for (size_t i = 0; i < calibrated_amax.size(); ++i) {
    Exceedance test;
    test.layer = static_cast<int64_t>(i / 2);
    test.side = kSides[i % 2];
    test.calibrated = calibrated;
    test.evaluated = std::ssize(evaluated);
    test.calibrated_amax = calibrated_amax[i];
    for (const EvaluatedAmax& one : evaluated) count_exceeding(one, test);
    test.p = exceedance_p(calibrated, test.evaluated, test.exceeding);
    p_values.push_back(test.p);
    out.push_back(std::move(test));
  }
  const std::vector<double> adjusted = holm_adjusted(p_values);
  for (size_t i = 0; i < out.size(); ++i) out[i].p_holm = adjusted[i];
  std::ranges::stable_sort(out, {}, &Exceedance::p);
  return out;
}

std::string not_representative_text(std::span<const Exceedance> tests, double alpha) {
  constexpr size_t kNamed = 6;
  std::vector<std::string> shown;
  size_t rejected = 0;
  for (const Exceedance& test : tests) {
    if (!(test.p_holm < alpha)) continue;
    if (++rejected > kNamed) continue;
    shown.push_back(fmt::format(
        "layer {} side {} ({} of {}, up to {:.4g} against {:.4g}, in bucket{} {}; p {:.2g})",
        test.layer, name(test.side), test.exceeding, test.evaluated, test.evaluated_amax,
        test.calibrated_amax, test.buckets.size() > 1 ? "s" : "", fmt::join(test.buckets, " "),
        test.p_holm));
  }
  if (rejected == 0) return "";
  if (rejected > kNamed) shown.emplace_back("...");
  return fmt::format(
      "CAL_NOT_REPRESENTATIVE: more contexts exceed the amax of {} calibration examples than one "
      "population of examples allows, on {} of {} layers' sides: {}",
      tests.front().calibrated, rejected, tests.size(), fmt::join(shown, ", "));
}

}  // namespace kv
