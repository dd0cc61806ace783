#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/session.h"
#include "kvscale/error.h"
#include "report/eval_report.h"
#include "study/capacity.h"
#include "study/scan.h"
#include "tensor/atomic_file.h"

namespace kv::cli {
namespace {

constexpr int64_t kOwnTokens = 1088;

/// Powers of two up to what the prompts reach.
std::vector<int64_t> default_edges(const std::vector<Prompt>& prompts) {
  int64_t longest = 1;
  for (const Prompt& prompt : prompts) longest = std::max(longest, std::ssize(prompt.tokens));
  std::vector<int64_t> edges = {256};
  while (edges.back() < longest) edges.push_back(2 * edges.back());
  return edges;
}

/// Arms with the scales they need: from their file, else from these very prompts.
std::vector<ArmToRun> arms_to_run(const std::vector<std::string>& names, const Session& session,
                                  const std::shared_ptr<const Model>& model,
                                  const std::vector<Prompt>& prompts, Progress& progress) {
  std::optional<Calibration> own;
  std::vector<ArmToRun> out;
  for (const std::string& name : names) {
    ArmToRun arm{ArmSpec::parse(name), std::nullopt};
    if (arm.spec.layout == ArmLayout::kBf16) continue;  // runs anyway
    if (arm.spec.needs_scales()) {
      const bool per_head = arm.spec.layout == ArmLayout::kFp8Head;
      if (!arm.spec.scale_file.empty()) {
        const Calibration from_file = read_calibration(arm.spec.scale_file);
        check_calibration(from_file, session.checkpoint().content_sha256(),
                          model->spec().num_layers, model->spec().num_kv_heads,
                          arm.spec.scale_file);
        arm.scales = from_file.scales(per_head);
      } else {
        if (!own)
          own = calibrate(model, prompts, session.calibration_source(), BatchPlan{}, progress);
        arm.scales = own->scales(per_head);
      }
    }
    out.push_back(std::move(arm));
  }
  return out;
}

}  // namespace

int run_eval(const EvalArgs& args) {
  Session session(args.run);
  for (const std::string& arm : args.arms)
    ArmSpec::parse(arm).formats(session.checkpoint().spec().num_layers);
  const std::vector<Prompt> prompts = session.prompts(kOwnTokens);
  const std::vector<int64_t> edges = args.buckets.empty() ? default_edges(prompts) : args.buckets;
  const auto folder = session.run_folder(
      "eval", fmt::format("arms {} buckets {}", fmt::join(args.arms, " "), fmt::join(edges, ",")),
      prompts);
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "records.jsonl");
  const auto model = session.model(progress);
  const std::vector<ArmToRun> arms = arms_to_run(args.arms, session, model, prompts, progress);
  const auto facts =
      run_logit_pass(model, prompts, arms, {"eval", edges, BatchPlan{}}, log, progress);
  progress.finish_line();

  EvalReport report;
  report.model = session.model_facts();
  report.prompts = session.prompt_facts(prompts);
  report.run = run_facts(facts, fmt::format("kvscale eval {}", args.run.model));
  report.logits = log.logits();
  for (const ArmToRun& arm : arms) {
    report.capacities.push_back(capacity_of(arm.spec, *model, model->spec().max_positions));
  }
  write_file_atomically(folder / "eval.json", eval_json(report));
  if (args.run.json) {
    fmt::print("{}\n", eval_json(report));
  } else {
    fmt::print("{}\nrecords: {}\n", eval_text(report, terminal_style()), folder.string());
  }
  return kExitAccept;
}

}  // namespace kv::cli
