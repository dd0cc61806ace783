#pragma once

#include <filesystem>
#include <string>

#include "evaluate/record_log.h"
#include "report/decide_run.h"
#include "report/verdict_report.h"

namespace kv::cli {

/// A finished decide run as its folder holds it, with the verdict computed again from its records.
struct StoredRun {
  std::filesystem::path folder;
  DecideRun run;
  Records records;
  Verdict verdict;
  RunFiles files;

  /// Points into this run.
  VerdictReport report() const;
};

/// Throws IoError and FormatError: naming what the folder lacks, or which command's run it is.
StoredRun read_stored_run(const std::filesystem::path& folder);

/// What the page holds of a run's files.
RunFiles run_files(const std::filesystem::path& folder);

/// "" when there is no such file.
std::string read_if_there(const std::filesystem::path& path);

}  // namespace kv::cli
