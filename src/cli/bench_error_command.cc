#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "cli/args.h"
#include "evaluate/fp8_error.h"
#include "kvscale/error.h"

namespace kv::cli {

namespace {

/// The experiment has no model, no cache and one size: an option about these would be passed over.
void refuse_model_options(const BenchArgs& args) {
  const BenchArgs defaults;
  const std::pair<const char*, bool> given[] = {
      {"--n-prompt", !args.prefill.empty()},
      {"--n-depth", !args.depths.empty()},
      {"--n-gen", args.tokens != defaults.tokens},
      {"--repetitions", args.repetitions != defaults.repetitions},
      {"--arm", !args.arms.empty()},
      {"--lockstep", args.lockstep},
      {"--output", args.output != defaults.output},
      {"--backend", !args.backend.empty()}};
  for (const auto& [option, is_given] : given) {
    if (!is_given) continue;
    throw ValueError(fmt::format(
        "bench fp8-error: {}: expected only --threads and --json, it runs no model", option));
  }
}

}  // namespace

int run_bench_error(const BenchArgs& args) {
  refuse_model_options(args);
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
