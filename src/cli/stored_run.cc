#include "cli/stored_run.h"

#include <fmt/core.h>

#include "checkpoint/hf_config.h"
#include "kvscale/error.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

/// The command that made the folder, from its configuration; "" when that does not say.
std::string command_of(const std::string& configuration) {
  const size_t at = configuration.find("\ncommand ");
  if (at == std::string::npos) return "";
  const size_t begin = at + 9;
  return configuration.substr(begin, configuration.find('\n', begin) - begin);
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& configuration) {
  const std::string command = command_of(configuration);
  if (command == "decide") {
    throw FormatError(fmt::format(
        "{}: run.json is missing: this decide run has no verdict yet; the command that began it "
        "goes on from here",
        folder.string()));
  }
  if (!command.empty()) {
    throw FormatError(fmt::format("{}: expected the folder of a decide run, found one of {}",
                                  folder.string(), command));
  }
  throw FormatError(fmt::format(
      "{}: expected the folder of a decide run, with run.json and records.jsonl", folder.string()));
}

}  // namespace

std::string read_if_there(const fs::path& path) {
  return fs::is_regular_file(path) ? read_text_file(path) : "";
}

RunFiles run_files(const fs::path& folder) {
  return {read_if_there(folder / "records.jsonl"), read_if_there(folder / "configuration.txt")};
}

VerdictReport StoredRun::report() const {
  return {verdict, records, run.model, run.prompts, run.run, files};
}

StoredRun read_stored_run(const fs::path& folder) {
  StoredRun out;
  out.folder = folder;
  out.files = run_files(folder);
  if (!fs::is_regular_file(folder / "run.json")) refuse(folder, out.files.configuration);
  out.run = read_decide_run(folder / "run.json");
  out.records = read_records(folder / "records.jsonl");
  try {
    out.verdict = recompute(out.run, out.records);
  } catch (const Error& error) {
    throw FormatError(fmt::format("{}: {}", folder.string(), error.what()));
  }
  return out;
}

}  // namespace kv::cli
