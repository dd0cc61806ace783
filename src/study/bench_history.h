#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// One test of two benches, in tokens per second.
struct BenchChange {
  std::string test;
  double before = 0, now = 0;
  bool is_slower = false;  // by more than kBenchRegression

  double ratio() const { return now / before; }
};

inline constexpr double kBenchRegression = 0.10;

/// Two outputs of `bench --json`, by test. Throws ValueError naming what differs when they are of
/// another model, arm or machine, and when the correctness gate of one of them failed: the speed of
/// a model that does not work is none. FormatError for what is no such output, with `before_name`
/// or "this run".
std::vector<BenchChange> compare_benches(std::string_view before, std::string_view now,
                                         const std::string& before_name);

}  // namespace kv
