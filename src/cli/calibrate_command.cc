#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "kvscale/error.h"
#include "study/scan.h"

namespace kv::cli {

int run_calibrate(const CalibrateArgs& args) {
  if (args.run.prompts.empty()) {
    throw ValueError(
        "calibrate: --prompts: expected a file; scales come from the prompts that will be served");
  }
  Session session(args.run);
  const std::vector<Prompt> prompts = session.prompts();
  const auto folder = session.run_folder("calibrate", "", prompts);
  ConsoleProgress progress("the same command starts again");
  const Calibration calibration = kv::calibrate(
      session.model(progress), prompts, session.calibration_source(), BatchPlan{}, progress);
  progress.finish_line();
  const auto file = folder / "scales.json";
  write_calibration(file, calibration);
  for (const std::string& warning : calibration.warnings)
    fmt::print(stderr, "warning: {}\n", warning);
  if (args.run.json) {
    const nlohmann::ordered_json out = {{"scale_file", file.string()},
                                        {"examples", calibration.source.examples},
                                        {"tokens", calibration.source.tokens},
                                        {"warnings", calibration.warnings.size()}};
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print(
        "{}: scales of {} layers from {} prompts, {} tokens (longest {})\n"
        "use them as an arm: fp8_tensor/scales={} or fp8_head/scales={}\n",
        file.string(), calibration.num_layers, calibration.source.examples,
        calibration.source.tokens, calibration.source.max_tokens, file.string(), file.string());
  }
  return kExitAccept;
}

}  // namespace kv::cli
