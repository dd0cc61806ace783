#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cli/args.h"
#include "evaluate/fp8_error.h"
#include "kvscale/error.h"

namespace kv::cli {

int run_bench_error(const BenchArgs& args) {
  ErrorExperiment experiment;
  const auto all = static_cast<int64_t>(std::thread::hardware_concurrency());
  experiment.threads =
      static_cast<int>(args.threads > 0 ? args.threads : std::max<int64_t>(all, 1));
  const std::vector<ErrorRow> rows = measure_fp8_error(experiment);
  if (args.json) {
    nlohmann::ordered_json out = {{"queries", experiment.queries},
                                  {"keys", experiment.keys},
                                  {"head_dim", experiment.head_dim},
                                  {"seed", experiment.seed},
                                  {"rows", nlohmann::ordered_json::array()}};
    for (const ErrorRow& row : rows) {
      out["rows"].push_back({{"path", name(row.path)}, {"mean", row.mean()}, {"rmse", row.rmse}});
    }
    fmt::print("{}\n", out.dump());
    return kExitAccept;
  }
  fmt::print(
      "Root mean square error of attention against double precision; {} queries, {} keys, head_dim "
      "{}, {} seeds.\nEntries N(0, 1), one in a thousand with N(0, 100) added.\n\n{:<42} {:>9}   "
      "{}\n",
      experiment.queries, experiment.keys, experiment.head_dim, experiment.seeds, "", "mean",
      "least to most");
  for (const ErrorRow& row : rows) {
    fmt::print("{:<42} {:>9.2e}   {:.1e} to {:.1e}\n", name(row.path), row.mean(), row.least(),
               row.most());
  }
  return kExitAccept;
}

}  // namespace kv::cli
