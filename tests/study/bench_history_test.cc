#include "study/bench_history.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kvscale/error.h"

namespace kv {
namespace {

std::string bench(double prefill, double decode, bool is_valid = true,
                  const char* machine = "EPYC") {
  return fmt::format(
      R"({{"model":"tiny","arm":"fp8_scale1","machine":"{}","valid":{},"rows":[)"
      R"({{"test":"pp512","tokens_per_s":{}}},{{"test":"tg32@0","tokens_per_s":{}}}]}})",
      machine, is_valid, prefill, decode);
}

std::string refusal(const std::string& before, const std::string& now) {
  try {
    compare_benches(before, now, "old.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BenchHistory, Case104WhatIsATenthSlowerIsSaid) {
  const auto changes = compare_benches(bench(100, 50), bench(89, 46), "old.json");
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].test, "pp512");
  EXPECT_TRUE(changes[0].is_slower);
  EXPECT_FALSE(changes[1].is_slower);  // 8 %
  EXPECT_DOUBLE_EQ(changes[1].ratio(), 0.92);
  EXPECT_FALSE(compare_benches(bench(100, 50), bench(140, 50), "old.json")[0].is_slower);
}

TEST(BenchHistory, Case104WhatDoesNotWorkIsNotCompared) {
  EXPECT_EQ(refusal(bench(100, 50, false), bench(100, 50)),
            "old.json: the correctness gate failed: its times are not those of a working model");
  EXPECT_EQ(refusal(bench(100, 50), bench(100, 50, false)),
            "this run: the correctness gate failed: its times are not those of a working model");
  EXPECT_EQ(refusal(bench(100, 50, true, "Xeon"), bench(100, 50)),
            "old.json: machine: expected EPYC, as now, found Xeon: not comparable");
  EXPECT_NE(refusal("{\"model\":3}", bench(1, 1)).find("old.json: expected what"),
            std::string::npos);
  EXPECT_NE(refusal(bench(0, 1), bench(1, 1)).find("expected speeds above 0"), std::string::npos);
}

}  // namespace
}  // namespace kv
