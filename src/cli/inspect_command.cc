#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/scale_args.h"
#include "cli/scale_source.h"
#include "cli/scale_text.h"
#include "cli/session.h"
#include "kvscale/error.h"

namespace kv::cli {
namespace {

std::string target_of(const InspectArgs& args) {
  if (args.backend.empty()) return args.target;
  const std::string engine = args.target.substr(0, args.target.find_first_of(":@"));
  const size_t device = args.target.find('@');
  return engine + ":" + args.backend +
         (device == std::string::npos ? "" : args.target.substr(device));
}

int exit_code(std::string_view health) {
  if (health == "healthy") return kExitAccept;
  return health == "doubtful" ? kExitInconclusive : kExitReject;
}

}  // namespace

int run_inspect(const InspectArgs& args) {
  if (!args.backend.empty() && args.target.empty()) {
    throw ValueError("inspect: --backend: expected --for beside it");
  }
  const ScaleSet set = read_scale_source(model_path(args.path));
  Diagnosis diagnosis = diagnose(set);
  if (args.hash) check_model_hash(set, diagnosis.warnings);
  std::optional<DryRun> run;
  if (!args.target.empty()) {
    run = dry_run(set, {target_of(args), args.version, static_cast<int>(args.tp)});
  }
  if (args.json) {
    nlohmann::ordered_json out = json_inspection(set, diagnosis);
    if (run) out["engine"] = json_dry_run(*run);
    fmt::print("{}\n", out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", inspection_text(set, diagnosis));
    if (run) fmt::print("\n{}", dry_run_text(*run));
  }
  if (!run) return exit_code(diagnosis.health());
  Diagnosis both;
  both.warnings = diagnosis.warnings;
  both.warnings.insert(both.warnings.end(), run->warnings.begin(), run->warnings.end());
  return exit_code(both.health());
}

}  // namespace kv::cli
