#include "study/bench_history.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

struct StoredRow {
  std::string test;
  double tokens_per_s = 0;
};

struct StoredBench {
  std::string name, model, arm, machine;
  bool is_valid = false;
  std::vector<StoredRow> rows;
};

StoredBench read_bench(std::string_view text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name);
  StoredBench out{name, "", "", "", false, {}};
  try {
    out.model = json.at("model").get<std::string>();
    out.arm = json.at("arm").get<std::string>();
    out.machine = json.at("machine").get<std::string>();
    out.is_valid = json.at("valid").get<bool>();
    for (const nlohmann::json& row : json.at("rows")) {
      const auto cache = row.value("cache", out.arm);  // of several, each has rows of its own
      const auto test = row.at("test").get<std::string>();
      out.rows.push_back(
          {cache == out.arm ? test : cache + " " + test, row.at("tokens_per_s").get<double>()});
    }
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(
        fmt::format("{}: expected what `kvscale bench --json` prints: {}", name, error.what()));
  }
  const bool has_speeds =
      std::ranges::all_of(out.rows, [](const StoredRow& row) { return row.tokens_per_s > 0; });
  if (!has_speeds) throw FormatError(fmt::format("{}: expected speeds above 0", name));
  return out;
}

void expect_same(const char* what, const std::string& name, const std::string& before,
                 const std::string& now) {
  if (before == now) return;
  throw ValueError(fmt::format("{}: {}: expected {}, as now, found {}: not comparable", name, what,
                               now, before));
}

}  // namespace

std::vector<BenchChange> compare_benches(std::string_view before, std::string_view now,
                                         const std::string& before_name) {
  const StoredBench old = read_bench(before, before_name), here = read_bench(now, "this run");
  expect_same("model", before_name, old.model, here.model);
  expect_same("arm", before_name, old.arm, here.arm);
  expect_same("machine", before_name, old.machine, here.machine);
  for (const StoredBench* one : {&old, &here}) {
    if (one->is_valid) continue;
    throw ValueError(fmt::format(
        "{}: the correctness gate failed: its times are not those of a working model", one->name));
  }
  std::vector<BenchChange> out;
  for (const StoredRow& row : here.rows) {
    const auto known = std::ranges::find(old.rows, row.test, &StoredRow::test);
    if (known == old.rows.end()) continue;
    out.push_back({row.test, known->tokens_per_s, row.tokens_per_s,
                   row.tokens_per_s < (1 - kBenchRegression) * known->tokens_per_s});
  }
  if (out.empty()) {
    throw ValueError(fmt::format("{}: expected a test of this run, found none", before_name));
  }
  return out;
}

}  // namespace kv
