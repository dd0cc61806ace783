#include <fmt/core.h>

#include <algorithm>
#include <list>

#include "cli/console.h"
#include "cli/reanalysis_args.h"
#include "cli/stored_run.h"
#include "decide/verdict_json.h"
#include "kvscale/error.h"
#include "report/runs_report.h"
#include "tensor/atomic_file.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) { return fs::is_regular_file(folder / "run.json"); }

/// A run's folder, or those right below a folder, by name.
std::vector<fs::path> runs_in(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw IoError(fmt::format("{}: expected a folder, found none", folder.string()));
  }
  if (is_run(folder) || fs::exists(folder / "records.jsonl")) return {folder};
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && is_run(entry.path())) out.push_back(entry.path());
  }
  std::ranges::sort(out);
  if (out.empty()) {
    throw FormatError(
        fmt::format("{}: expected a decide run that has its verdict (run.json), or folders of such",
                    folder.string()));
  }
  return out;
}

/// How a page at `page` names a file beside a run: a relative link, percent-encoded (RFC 3986).
std::string link_from(const fs::path& page, const fs::path& file) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  const fs::path from = fs::absolute(page).lexically_normal().parent_path();
  std::string out;
  for (const char c : fs::absolute(file).lexically_normal().lexically_relative(from).string()) {
    const bool is_plain = kPlain.find(c) != std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

/// Whether the folder's decision is the one that its records give.
bool is_current(const StoredRun& run) {
  return read_if_there(run.folder / "decision.json") == verdict_json(run.verdict);
}

int report_one(const StoredRun& run, const fs::path& page) {
  write_file_atomically(page, verdict_page(run.report()));
  fmt::print("{}: {}\n{}report: {}\n", name(run.verdict.outcome), run.verdict.sentence,
             is_current(run) ? ""
                             : fmt::format("{}: differs from what the records give, which is what "
                                           "is shown: kvscale recompute says where\n",
                                           (run.folder / "decision.json").string()),
             page.string());
  return kExitAccept;
}

}  // namespace

int run_report(const ReportArgs& args) {
  std::vector<fs::path> folders;
  for (const std::string& folder : args.folders) {
    for (fs::path& run : runs_in(folder)) folders.push_back(std::move(run));
  }
  std::list<StoredRun> runs;  // verdicts are pointed at
  for (const fs::path& folder : folders) runs.push_back(read_stored_run(folder));
  if (runs.size() == 1) {
    return report_one(runs.front(),
                      args.out.empty() ? runs.front().folder / "report.html" : fs::path(args.out));
  }
  const fs::path page = args.out.empty() ? fs::path("kvscale-runs.html") : fs::path(args.out);
  std::vector<RunRow> rows;
  for (const StoredRun& run : runs) {
    const fs::path own = run.folder / "report.html";
    if (!fs::exists(own)) write_file_atomically(own, verdict_page(run.report()));
    rows.push_back({run.folder.string(), link_from(page, own), &run.verdict, run.run.model,
                    run.run.prompts, is_current(run)});
  }
  write_file_atomically(page, runs_page(rows));
  fmt::print("{}report: {}\n", runs_text(rows, terminal_style()), page.string());
  return kExitAccept;
}

}  // namespace kv::cli
