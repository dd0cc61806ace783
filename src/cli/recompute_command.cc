#include <fmt/core.h>

#include <cstdio>

#include "cli/reanalysis_args.h"
#include "cli/stored_run.h"
#include "decide/verdict_json.h"
#include "kvscale/error.h"
#include "kvscale/version.h"
#include "report/json_differences.h"
#include "report/verdict_junit.h"
#include "tensor/atomic_file.h"
#include "text/sha256.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

/// Holds a rebuilt file against the run's; says what became of it on standard error. False when
/// they differ. A differing file is never overwritten: which of the two is right is for a person.
bool settle(const StoredRun& run, const RecomputeArgs& args, const std::string& file,
            const std::string& rebuilt) {
  const fs::path stored = run.folder / file;
  const bool is_there = fs::exists(stored);
  if (!args.out.empty()) {
    fs::create_directories(args.out);
    write_file_atomically(fs::path(args.out) / file, rebuilt);
  } else if (!is_there) {
    write_file_atomically(stored, rebuilt);
  }
  if (!is_there) {
    fmt::print(stderr, "{}: was missing{}\n", stored.string(), args.out.empty() ? ", written" : "");
    return true;
  }
  const auto differences = json_differences(rebuilt, read_if_there(stored));
  if (differences.empty()) {
    fmt::print(stderr, "{}: identical, {} bytes, SHA-256 {}\n", stored.string(), rebuilt.size(),
               sha256_hex(rebuilt).substr(0, 16));
    return true;
  }
  fmt::print(stderr, "{}: differs from what its records give\n", stored.string());
  for (const std::string& line : differences) fmt::print(stderr, "  {}\n", line);
  if (run.run.run.version != kVersion) {
    fmt::print(stderr, "  kvscale {} wrote it, this is kvscale {}\n", run.run.run.version,
               kVersion);
  }
  return false;
}

}  // namespace

int run_recompute(const RecomputeArgs& args) {
  const StoredRun run = read_stored_run(args.folder);
  const std::string decision = verdict_json(run.verdict);
  bool is_identical = settle(run, args, "decision.json", decision);
  if (args.report) {
    is_identical &= settle(run, args, "report.html", verdict_page(run.report()));
  }
  if (!args.junit.empty()) write_file_atomically(args.junit, verdict_junit(run.report()));
  if (args.json) {
    fmt::print("{}", decision);
  } else {
    fmt::print("{}: {}\n", name(run.verdict.outcome), run.verdict.sentence);
  }
  return is_identical ? run.verdict.exit_code : kExitUsage;
}

}  // namespace kv::cli
