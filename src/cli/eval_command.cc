#include <fmt/core.h>
#include <fmt/ranges.h>

#include <map>

#include "calibrate/fingerprint.h"
#include "calibrate/representative.h"
#include "cli/sampling_args.h"
#include "cli/session.h"
#include "decide/logit_alarm.h"
#include "decide/thresholds.h"
#include "evaluate/generation.h"
#include "kvscale/error.h"
#include "report/eval_report.h"
#include "study/capacity.h"
#include "study/continuation_pass.h"
#include "study/forced_pass.h"
#include "study/scan.h"
#include "tensor/atomic_file.h"
#include "tensor/mapped_file.h"
#include "text/sha256.h"

namespace kv::cli {
namespace {

/// Powers of two up to what the prompts reach.
std::vector<int64_t> default_edges(const std::vector<Prompt>& prompts) {
  int64_t longest = 1;
  for (const Prompt& prompt : prompts) longest = std::max(longest, std::ssize(prompt.tokens));
  std::vector<int64_t> edges = {256};
  while (edges.back() < longest) edges.push_back(2 * edges.back());
  return edges;
}

/// "fp8_scale1,fp8_tensor/bf16=0,3" is two arms: a comma parts them where a layout follows.
std::vector<std::string> split_arms(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    const size_t end = std::min(word.find("/scales="), word.size());  // a file's name stays whole
    size_t first = 0;
    for (size_t comma = word.find(",fp8_"); comma < end; comma = word.find(",fp8_", comma + 1)) {
      out.push_back(word.substr(first, comma - first));
      first = comma + 1;
    }
    out.push_back(word.substr(first));
  }
  return out;
}

/// The contents of scale files: the same name may hold other scales tomorrow.
std::string scale_files(const std::vector<std::string>& arms) {
  std::string out;
  for (const std::string& arm : arms) {
    const std::string file = ArmSpec::parse(arm).scale_file;
    if (file.empty()) continue;
    const MappedFile scales(file);
    const auto bytes = scales.bytes();
    out += fmt::format("\nscales {} {}", file,
                       sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  return out;
}

/// The scale files of the arms, each once.
std::map<std::string, Calibration> read_scale_files(const std::vector<std::string>& names) {
  std::map<std::string, Calibration> out;
  for (const std::string& name : names) {
    const std::string file = ArmSpec::parse(name).scale_file;
    if (!file.empty() && !out.contains(file)) out[file] = read_calibration(file);
  }
  return out;
}

/// Whether the prompts store what the scales' calibration stored, by the records of this pass.
std::string not_representative(const Calibration& calibration, const RecordLog& log) {
  std::vector<EvaluatedAmax> evaluated;
  for (const AmaxRecord& record : log.amaxes()) {
    evaluated.push_back({record.bucket, largest_of_heads(record.amax, record.kv_heads)});
  }
  return not_representative_text(
      test_exceedance(largest_of_heads(calibration.amax, calibration.num_kv_heads),
                      calibration.source.examples, evaluated),
      thresholds::kAlphaShift);
}

/// What the scale files do not say about these prompts.
std::vector<std::string> calibration_notices(const std::map<std::string, Calibration>& files,
                                             const Session& session,
                                             const std::shared_ptr<const Model>& model,
                                             const std::vector<Prompt>& prompts,
                                             const RecordLog& log, Progress& progress) {
  std::vector<std::string> out;
  for (const auto& [file, calibration] : files) {
    for (const std::string& notice : check_calibration(calibration, session.calibration_source(),
                                                       session.checkpoint().spec(), file)) {
      out.push_back(notice);
    }
    for (const std::string& text :
         {not_representative(calibration, log),
          unseen_text(find_unseen_tokens(model, prompts, calibration, BatchPlan{}, progress))}) {
      if (!text.empty()) out.push_back(file + ": " + text);
    }
  }
  return out;
}

/// Arms with the scales they need: from their file, else from these very prompts.
std::vector<ArmToRun> arms_to_run(const std::vector<std::string>& names,
                                  const std::map<std::string, Calibration>& files,
                                  const Session& session, const std::shared_ptr<const Model>& model,
                                  const std::vector<Prompt>& prompts, Progress& progress) {
  std::optional<Calibration> own;
  std::vector<ArmToRun> out;
  for (const std::string& name : names) {
    ArmToRun arm{ArmSpec::parse(name), std::nullopt};
    if (arm.spec.layout == ArmLayout::kBf16) continue;  // runs anyway
    if (arm.spec.needs_scales()) {
      const bool per_head = arm.spec.layout == ArmLayout::kFp8Head;
      if (!arm.spec.scale_file.empty()) {
        arm.scales = files.at(arm.spec.scale_file).scales(per_head);
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

/// What is generated after the prompts; no tokens: nothing.
ContinuationOptions continuation_options(const EvalArgs& args, const std::vector<int64_t>& edges) {
  ContinuationOptions out;
  out.block = "eval";
  out.bucket_edges = edges;
  out.tokens = args.generate;
  out.sampling = answer_sampling("eval", args.sampling, args.seed);
  if (args.generate > static_cast<int64_t>(kMostRecordedIds)) {
    throw ValueError(fmt::format("eval: --generate: expected at most {}, found {}",
                                 kMostRecordedIds, args.generate));
  }
  if (args.generate == 0 && args.forced == 0 && !out.sampling.how.is_greedy()) {
    throw ValueError(
        "eval: --temperature: expected --generate or --forced beside it: nothing is sampled");
  }
  return out;
}

std::string continuation_configuration(const ContinuationOptions& options, int64_t forced) {
  std::string out;
  if (options.tokens > 0) out += fmt::format("\ngenerate {}", options.tokens);
  if (forced > 0) out += fmt::format("\nforced {}", forced);
  return out.empty() ? out : out + sampling_configuration(options.sampling);
}

ForcedOptions forced_options(const EvalArgs& args) {
  return {forced_edges(args.forced),
          args.forced,
          answer_sampling("eval", args.sampling, args.seed).how,
          args.seed,
          {}};
}

/// The records of one block of buckets: of positions, or of generated tokens.
std::vector<LogitRecord> logits_of(const RecordLog& log, std::string_view block) {
  std::vector<LogitRecord> out;
  for (const LogitRecord& record : log.logits()) {
    if (record.block == block) out.push_back(record);
  }
  return out;
}

}  // namespace

int run_eval(const EvalArgs& args) {
  Session session(args.run);
  const std::vector<std::string> names = split_arms(args.arms);
  for (const std::string& arm : names)
    ArmSpec::parse(arm).formats(session.checkpoint().spec().num_layers);
  const std::vector<Prompt> prompts = session.prompts();
  const std::vector<int64_t> edges = args.buckets.empty() ? default_edges(prompts) : args.buckets;
  const ContinuationOptions continuations = continuation_options(args, edges);
  const auto folder = session.run_folder(
      "eval",
      fmt::format("arms {} buckets {}{}{}", fmt::join(names, " "), fmt::join(edges, ","),
                  scale_files(names), continuation_configuration(continuations, args.forced)),
      prompts);
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "records.jsonl", machine_name());
  const std::map<std::string, Calibration> files = read_scale_files(names);
  for (const auto& [file, calibration] : files) {
    check_calibration(calibration, session.calibration_source(), session.checkpoint().spec(), file);
  }
  const auto model = session.model(progress);
  const std::vector<ArmToRun> arms = arms_to_run(names, files, session, model, prompts, progress);
  run_logit_pass(model, prompts, arms, {"eval", edges, BatchPlan{}, !files.empty()}, log, progress);
  if (continuations.tokens > 0) {
    run_continuation_pass(model, prompts, arms, continuations, log, progress);
  }
  if (args.forced > 0) {
    run_forced_pass(model, prompts, arms, forced_options(args), log, progress);
  }
  const std::vector<std::string> notices =
      calibration_notices(files, session, model, prompts, log, progress);
  progress.finish_line();

  EvalReport report;
  report.model = session.model_facts();
  report.prompts = session.prompt_facts(prompts);
  report.run = run_facts(log.facts(), args.run.command);
  report.logits = logits_of(log, "eval");
  report.forced = logits_of(log, kForcedBlock);
  report.divergence = divergence_rows(log.records());
  report.notices = notices;
  report.alarms = logit_alarms(report.logits, 0);
  for (const std::string& alarm : logit_alarms(report.forced, 0))
    report.alarms.push_back("generated tokens: " + alarm);
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
