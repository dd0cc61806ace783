#include <fmt/core.h>

#include "cli/session.h"
#include "report/scan_report.h"
#include "study/capacity.h"
#include "study/scan.h"
#include "tensor/atomic_file.h"

namespace kv::cli {

int run_scan(const ScanArgs& args) {
  Session session(args.run);
  const std::vector<Prompt> prompts = session.prompts();
  ScanOptions options;
  options.range.stride = args.stride;
  options.range.rounding =
      args.rounding == "truncate" ? Rounding::kTruncate : Rounding::kNearestEven;
  options.with_bf16_layers = !args.no_bf16_layers;
  const auto folder =
      session.run_folder("scan",
                         fmt::format("stride {} round {} bf16_layers {}", args.stride,
                                     args.rounding, options.with_bf16_layers),
                         prompts);
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "records.jsonl", machine_name());
  const auto model = session.model(progress);
  const ScanResult result =
      kv::run_scan(model, prompts, session.calibration_source(), options, log, progress);
  progress.finish_line();

  ScanReport report;
  report.model = session.model_facts();
  report.prompts = session.prompt_facts(prompts);
  report.run = run_facts(log.facts(), args.run.command);
  report.ranges = result.ranges;
  report.first_tokens = result.first_tokens;
  report.arms = result.arms;
  report.logits = log.logits();
  for (const ArmRecord& arm : result.arms) {
    report.capacities.push_back(
        capacity_of(ArmSpec::parse(arm.arm), *model, model->spec().max_positions));
  }
  report.bf16_layers = result.bf16_layers;
  write_file_atomically(folder / "report.html", scan_page(report));
  write_file_atomically(folder / "scan.json", scan_json(report));
  write_calibration(folder / "scales.json", result.calibration);
  if (args.run.json) {
    fmt::print("{}\n", scan_json(report));
  } else {
    fmt::print("{}\nreport: {}\n", scan_text(report, terminal_style()),
               (folder / "report.html").string());
  }
  return kExitAccept;
}

}  // namespace kv::cli
