#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/hf_config.h"
#include "checkpoint/scales/scale_set.h"
#include "cli/export_verified.h"
#include "cli/sampling_args.h"
#include "cli/served_servers.h"
#include "cli/session.h"
#include "cli/stored_run.h"
#include "decide/set_option.h"
#include "decide/verdict_json.h"
#include "evaluate/example_lines.h"
#include "evaluate/record_json.h"
#include "kvscale/error.h"
#include "report/decide_run.h"
#include "report/verdict_junit.h"
#include "report/verdict_report.h"
#include "study/budget.h"
#include "study/decide_study.h"
#include "targets/targets.h"
#include "tensor/atomic_file.h"
#include "text/sha256.h"

namespace kv::cli {
namespace {

// A vocabulary that small belongs to a model that was made for the compact forms.
constexpr int32_t kSmallVocabulary = 4096;

Commands commands(const DecideArgs& args) {
  const DecideArgs defaults;
  std::string repeat = "kvscale decide " + quoted(args.run.model);
  if (!args.run.prompts.empty()) repeat += " --prompts " + quoted(args.run.prompts);
  if (!args.buckets.empty()) repeat += fmt::format(" --buckets {}", fmt::join(args.buckets, ","));
  if (!args.tasks.empty()) repeat += fmt::format(" --tasks {}", fmt::join(args.tasks, ","));
  if (!args.target.empty()) repeat += " --target " + quoted(args.target);
  for (const std::string& one : args.set) repeat += " --set " + quoted(one);
  if (!args.timing.empty()) repeat += " --timing " + quoted(args.timing);
  if (args.seed != defaults.seed) repeat += fmt::format(" --seed {}", args.seed);
  if (args.estimator != defaults.estimator) repeat += " --estimator " + args.estimator;
  repeat += sampling_options(answer_sampling("decide", args.sampling, args.seed));
  repeat += served_options(args);
  std::string margin = "--margin " + args.margin;
  if (args.bucket_points > 0) margin += fmt::format(" --margin-bucket {}", args.bucket_points);
  if (args.overall_points > 0) margin += fmt::format(" --margin-overall {}", args.overall_points);
  return {repeat, margin};
}

/// Options about generated documents, where the prompts have answers of their own.
void refuse_generator_options(const DecideArgs& args, const std::vector<Prompt>& prompts) {
  if (std::ranges::none_of(prompts, &Prompt::has_answer)) return;
  const std::pair<const char*, bool> given[] = {{"--tasks", !args.tasks.empty()},
                                                {"--dump-examples", !args.dump_examples.empty()},
                                                {"--budget", args.budget_minutes > 0},
                                                {"--documents", args.documents > 0},
                                                {"--questions", args.questions > 0}};
  for (const auto& [option, is_given] : given) {
    if (!is_given) continue;
    throw ValueError(
        fmt::format("decide: {}: {} has prompts with answers, so no documents are "
                    "generated",
                    option, args.run.prompts));
  }
}

template <class Word>
void refuse_doubles(const char* option, std::vector<Word> words) {
  std::ranges::sort(words);
  const auto twice = std::ranges::adjacent_find(words);
  if (twice == words.end()) return;
  throw ValueError(fmt::format("decide: {}: expected each once, found {} twice", option, *twice));
}

void check_buckets(const std::vector<int64_t>& buckets, int64_t context) {
  refuse_doubles("--buckets", buckets);
  for (const int64_t bucket : buckets) {
    if (bucket <= context) continue;
    throw ValueError(
        fmt::format("decide: --buckets: expected at most {}, the model's context, "
                    "found {}",
                    context, bucket));
  }
}

/// Which layouts there are and how they are read and written is the engine's matter. Without an
/// engine: every layout, codes widened exactly, rounded to nearest.
void set_target(const std::string& target, DecideOptions& options) {
  if (target.empty()) return;
  const TargetRow& row = find_target(target);
  options.target = full_target_name(target);
  options.rounding = row.round == "truncate" ? Rounding::kTruncate : Rounding::kNearestEven;
  // Per-token-head scales are read with 16-bit queries everywhere; Machine::arm knows.
  options.math = support("fp8_scale1", row.name).math == "fp8" ? Math::kFp8 : Math::kBf16;
}

/// What has an option of its own is set by that one, so that a command that is printed with another
/// value of it means that value.
void refuse_set_twice(const std::vector<std::string>& set) {
  constexpr std::pair<std::string_view, std::string_view> kOwn[] = {
      {"documents=", "--documents"},
      {"questions_per_document=", "--questions"},
      {"margin.bucket=", "--margin-bucket, in points"},
      {"margin.overall=", "--margin-overall, in points"}};
  for (const std::string& one : set) {
    for (const auto& [name, option] : kOwn) {
      if (!one.starts_with(name)) continue;
      throw ValueError(fmt::format("decide: --set {}: expected {} instead", one, option));
    }
  }
}

/// Every bucket has a share of the traffic, and no share is for a bucket that there is not.
void check_traffic(const std::map<std::string, double>& traffic,
                   const std::vector<int64_t>& buckets) {
  if (traffic.empty()) return;
  std::vector<std::string> found, expected;
  for (const auto& [bucket, share] : traffic) found.push_back(bucket);
  for (const int64_t bucket : buckets) expected.push_back(fmt::format("{}", bucket));
  std::ranges::sort(expected);
  if (found == expected) return;
  throw ValueError(fmt::format("decide: traffic: expected shares of the buckets {}, found {}",
                               fmt::join(buckets, ", "), fmt::join(found, ", ")));
}

DecideOptions decide_options(const DecideArgs& args) {
  DecideOptions options = DecideOptions::named(args.margin);
  if (args.bucket_points > 0) options.margin.bucket = args.bucket_points / 100;
  if (args.overall_points > 0) options.margin.overall = args.overall_points / 100;
  if (args.budget_minutes > 0 && (args.documents > 0 || args.questions > 0)) {
    throw ValueError("decide: --budget: expected no --documents and --questions, which it chooses");
  }
  if (args.documents > 0) options.documents = args.documents;
  if (args.questions > 0) options.questions_per_document = args.questions;
  set_target(args.target.empty() && names_servers(args) ? served_engine(args) : args.target,
             options);
  refuse_set_twice(args.set);
  for (const std::string& one : args.set) set_option(options, one);
  options.commands = commands(args);
  return options;
}

StudyOptions study_options(const DecideArgs& args, const Session& session,
                           const std::vector<Prompt>& prompts) {
  StudyOptions options;
  options.decide = decide_options(args);
  options.buckets = args.buckets;
  if (options.buckets.empty()) {
    options.buckets =
        default_buckets(prompts, args.run.prompts.empty(), session.checkpoint().spec());
  }
  std::ranges::sort(options.buckets);
  check_buckets(options.buckets, session.checkpoint().spec().max_positions);
  check_traffic(options.decide.traffic, options.buckets);
  refuse_doubles("--tasks", args.tasks);
  if (args.tasks.size() > 1 && std::ranges::find(args.tasks, kAllTasks) != args.tasks.end()) {
    throw ValueError("decide: --tasks: expected all alone, found other tasks beside it");
  }
  refuse_generator_options(args, prompts);
  options.tasks = args.tasks;
  options.form =
      session.tokenizer().vocab_size() < kSmallVocabulary ? Form::kCompact : Form::kPlain;
  options.seed = args.seed;
  options.estimator = Estimator::parse(args.estimator);
  options.sampling = answer_sampling("decide", args.sampling, args.seed);
  return options;
}

/// Everything that decides what is run, so that the same command resumes and another one does not.
std::string configuration(const StudyOptions& o, const std::vector<std::string>& set) {
  return fmt::format(
      "margin {} {} {}\nmath {} round {}\nlooks {}\ndocuments {} questions {}\nbuckets {}\n"
      "tasks {}\nseed {}\ntarget {}\nset {}\ngenerator {}\nestimator {}{}",
      o.decide.margin.bucket, o.decide.margin.overall, o.decide.margin.validity,
      o.decide.math == Math::kFp8 ? "fp8" : "bf16",
      o.decide.rounding == Rounding::kTruncate ? "truncate" : "nearest",
      fmt::join(o.decide.looks, ","), o.decide.documents, o.decide.questions_per_document,
      fmt::join(o.buckets, ","),
      o.tasks.empty() ? "piloted" : fmt::format("{}", fmt::join(o.tasks, ",")), o.seed,
      o.decide.target, fmt::join(set, " "), kGeneratorVersion, o.estimator.text(),
      sampling_configuration(o.sampling));
}

/// A run of an arm at a length is timed once: another id makes it no second one.
void refuse_same_run(const std::string& file, const TimingRecord& record, const RecordLog& log) {
  for (const TimingRecord& known : log.timings()) {
    if (known.arm != record.arm || known.bucket != record.bucket || known.run != record.run) {
      continue;
    }
    throw FormatError(fmt::format(
        "{}: {}: run {} of {} at {} is there already as {}: expected runs that are numbered on",
        file, record.record_id, record.run, record.arm, record.bucket, known.record_id));
  }
}

/// With --budget: the plan that fits, and what it cuts said beside the verdict.
struct Budgeted {
  StudyOptions options;
  std::vector<std::string> notices;
  std::vector<NextCommand> next;
};

Budgeted within_budget(const DecideArgs& args, const StudyOptions& asked,
                       const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer,
                       const std::filesystem::path& folder, Progress& progress) {
  Budgeted out{asked, {}, {}};
  if (args.budget_minutes == 0) return out;
  // A tenth of the time for the pilot: what it costs is in the plan.
  const BudgetPilot pilot = run_budget_pilot(model, tokenizer, asked, folder / "budget.json",
                                             6 * args.budget_minutes, progress);
  const BudgetPlan plan = plan_for_budget(pilot, asked.decide, asked.buckets, args.budget_minutes,
                                          args.is_margin_given);
  out.options.decide = plan.decide;
  out.options.buckets = plan.buckets;
  out.notices = plan.notices;
  if (plan.notices.size() == 1) return out;  // nothing was cut
  if (plan.buckets != asked.buckets) {
    DecideArgs shorter = args;
    shorter.buckets = plan.buckets;
    out.options.decide.commands.repeat = commands(shorter).repeat;
  }
  const Commands full = asked.decide.commands;
  out.next.push_back({fmt::format("{} {}", full.repeat, full.margin),
                      fmt::format("the plan without a budget, about {:.0f} min on this machine",
                                  plan.full_seconds / 60)});
  return out;
}

/// Where servers answer, which ones: not at which address, so that a run goes on with servers that
/// were started again.
std::string served_configuration(const DecideArgs& args) {
  if (!names_servers(args)) return "";
  return fmt::format("\nserved by {}, {}{}", served_engine(args),
                     args.launch.empty() ? "running" : "launched by " + args.launch,
                     args.no_prefix_cache ? ", without prefix cache" : "");
}

/// Options about servers, where none is named.
void refuse_server_options(const DecideArgs& args) {
  if (names_servers(args)) return;
  const std::pair<const char*, bool> given[] = {{"--engine", !args.engine.empty()},
                                                {"--server-model", !args.server_model.empty()},
                                                {"--no-prefix-cache", args.no_prefix_cache},
                                                {"--api-key-env", !args.api_key_env.empty()},
                                                {"--api-key-file", !args.api_key_file.empty()}};
  for (const auto& [option, is_given] : given) {
    if (!is_given) continue;
    throw ValueError(fmt::format(
        "decide: {}: expected --control and --candidate, or --launch, beside it", option));
  }
}

/// What servers are not asked for yet.
void refuse_unserved(const DecideArgs& args, const StudyOptions& options) {
  if (!names_servers(args)) return;
  if (args.budget_minutes > 0) {
    throw ValueError("decide: --budget: expected no servers: their speed is not piloted");
  }
  if (options.sampling.samples != 1 || !options.sampling.how.is_greedy()) {
    throw ValueError(
        "decide: --temperature: expected no servers: they draw with random numbers of their own");
  }
}

/// Takes timing records over into the run, each once.
void add_timings(const std::string& file, RecordLog& log) {
  const Records found = read_records(file);
  if (found.timings.empty()) {
    throw FormatError(fmt::format("{}: expected records of kind timing, found none", file));
  }
  for (const TimingRecord& record : found.timings) {
    if (!(record.ttft_ms > 0 && record.itl_ms > 0 && record.output_throughput > 0)) {
      throw FormatError(
          fmt::format("{}: {}: expected times and throughput above 0", file, record.record_id));
    }
    if (!log.has(record.record_id)) {
      refuse_same_run(file, record, log);
      log.append(record);
      continue;
    }
    const auto earlier =
        std::ranges::find(log.timings(), record.record_id, &TimingRecord::record_id);
    if (earlier != log.timings().end() && record_to_json(*earlier) == record_to_json(record))
      continue;
    throw FormatError(fmt::format(
        "{}: {}: expected a new record_id, found one that this run holds with another content",
        file, record.record_id));
  }
}

bool has_half_layers(const ArmSpec& arm) {
  return std::ranges::any_of(arm.bf16, [](const Bf16Side& side) { return side.k != side.v; });
}

/// Whether the engine gets the accepted arm's layout from the model's directory.
bool needs_directory(const ArmSpec& arm, const TargetRow& row) {
  if (arm.needs_scales()) return true;
  const bool is_switched_by_flag = row.engine == "vllm" || row.engine == "sglang";
  return arm.layout == ArmLayout::kFp8Scale1 && !is_switched_by_flag;
}

ExportArgs export_args(const DecideArgs& args, const ArmSpec& arm,
                       const std::filesystem::path& folder) {
  ExportArgs out;
  out.model = args.run.model;
  out.target = args.target;
  out.layout = std::string(name(arm.layout));
  for (const Bf16Side& side : arm.bf16) out.bf16_layers.push_back(side.layer);
  if (arm.needs_scales()) out.scales = (folder / "scales.json").string();
  out.out = (folder / "export").string();
  return out;
}

std::string export_command(const ExportArgs& args, const std::string& model) {
  std::string out = fmt::format("kvscale export {} --out {} --for {} --layout {}", model,
                                quoted(args.out), quoted(args.target), args.layout);
  if (!args.scales.empty()) out += " --scales " + quoted(args.scales);
  if (!args.bf16_layers.empty()) {
    out += fmt::format(" --bf16-layers {}", fmt::join(args.bf16_layers, ","));
  }
  return out;
}

/// Adds what the directory is and how it is served.
void add_directory(const ExportArgs& request, const TargetRow& row, const ExportRecord& record,
                   const Verification& check, Verdict& verdict) {
  for (const ScaleWarning& finding : check.findings) {
    verdict.notices.push_back(fmt::format("{}: {}", request.out, finding.text));
  }
  if (check.verdict == "contradicted") {
    verdict.notices.push_back(
        fmt::format("{}: {} scales for {}, contradicted when they were read back by its rules: not "
                    "to be served",
                    request.out, record.scales.size(), row.name));
    verdict.launch.erase(std::string(row.engine));
    verdict.exit_code = kExitInconclusive;
    return;
  }
  const LaunchLine launch = launch_of(request, record);
  verdict.launch[std::string(row.engine)] = {launch.text, launch.notes};
  verdict.notices.push_back(fmt::format("{}: {} scales for {}, read back by its rules: {}",
                                        request.out, record.scales.size(), row.name,
                                        check.verdict));
}

/// The directory of an earlier end of this run, read back again: an engine may be serving from it.
/// False when there is none. Throws FormatError when there is another.
bool add_earlier_directory(const ExportArgs& request, const TargetRow& row, Verdict& verdict) {
  if (!std::filesystem::exists(request.out)) return false;
  const ScaleSet written = read_scales(request.out);
  const std::string sha256 =
      request.scales.empty() ? "" : sha256_hex(read_text_file(request.scales));
  const auto& record = written.record;
  if (!record || record->target != row.name || record->layout != request.layout ||
      record->scale_sha256 != sha256 ||
      !std::ranges::equal(record->bf16_layers, request.bf16_layers)) {
    throw FormatError(
        fmt::format("{}: expected the directory that this run wrote, found another", request.out));
  }
  const Verification check = verify(written, record->scales, {std::string(row.name), "", 1});
  add_directory(request, row, *record, check, verdict);
  return true;
}

/// For an engine that was named: the directory that it loads, written beside the verdict and read
/// back by its rules. A directory that contradicts the scales takes the exit code with it; one that
/// cannot be written leaves the verdict and the command to write it.
void export_accepted(const DecideArgs& args, const std::filesystem::path& folder,
                     Verdict& verdict) {
  if (args.target.empty() || verdict.layout.empty()) return;
  const TargetRow& row = find_target(args.target);
  const ArmSpec arm = ArmSpec::parse(verdict.layout);
  if (!needs_directory(arm, row)) return;
  if (has_half_layers(arm)) {
    verdict.notices.push_back(
        fmt::format("no directory for {}: {} keeps K or V of a layer alone in BF16, which no "
                    "engine's form says",
                    row.name, verdict.layout));
    return;
  }
  const ExportArgs request = export_args(args, arm, folder);
  if (!std::filesystem::is_directory(model_path(args.run.model))) {
    verdict.next.push_back({export_command(request, "HF_DIRECTORY --any-model"),
                            fmt::format("{} reads scales from a Hugging Face directory of this "
                                        "model only; {} is none",
                                        row.engine, args.run.model)});
    return;
  }
  try {
    if (add_earlier_directory(request, row, verdict)) return;
    const Exported result = export_verified(request);
    add_directory(request, row, result.record, result.check, verdict);
  } catch (const Error& error) {
    verdict.next.push_back({export_command(request, quoted(args.run.model)),
                            fmt::format("the directory was not written: {}", error.what())});
  }
}

/// All questions of all blocks that were made, a line each. The A/A block is a part of E1.
std::string examples_text(const DecideStudy& study, const Tokenizer& tokenizer) {
  std::string out;
  for (const auto& [block, documents] : study.documents()) {
    if (block == "AA") continue;
    for (const Document& document : documents) out += example_lines(document, block, tokenizer);
  }
  return out;
}

}  // namespace

int run_decide(const DecideArgs& args) {
  refuse_server_options(args);
  Session session(args.run);
  const std::vector<Prompt> prompts = session.prompts(StudyOptions{}.max_new_tokens);
  const StudyOptions asked = study_options(args, session, prompts);
  check_options(asked.decide);
  refuse_unserved(args, asked);
  std::string configured = configuration(asked, args.set) + served_configuration(args);
  if (args.budget_minutes > 0) configured += fmt::format("\nbudget {}", args.budget_minutes);
  const auto folder = session.run_folder("decide", configured, prompts);
  const auto servers = names_servers(args) ? served_arms(args, folder) : nullptr;
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "records.jsonl", machine_name());
  if (!args.timing.empty()) add_timings(args.timing, log);
  const auto model = session.model(progress);
  const Budgeted budgeted =
      within_budget(args, asked, model, session.tokenizer(), folder, progress);
  DecideStudy study(model, session.tokenizer(), prompts, session.calibration_source(),
                    budgeted.options, folder, log, progress);
  if (servers) study.serve(*servers, static_cast<int>(args.concurrency));
  const Verdict own = study.run();
  Verdict verdict = own;
  progress.finish_line();
  verdict.notices.insert(verdict.notices.end(), budgeted.notices.begin(), budgeted.notices.end());
  verdict.notices.insert(verdict.notices.end(), study.notices().begin(), study.notices().end());
  verdict.next.insert(verdict.next.end(), budgeted.next.begin(), budgeted.next.end());
  export_accepted(args, folder, verdict);

  const DecideRun run{verdict.options,
                      model->geometry(),
                      study.facts(),
                      study.sizes(),
                      ending_between(own, verdict),
                      session.model_facts(),
                      session.prompt_facts(prompts),
                      run_facts(log.facts(), args.run.command),
                      count_examples(log.records())};
  write_file_atomically(folder / "run.json", decide_run_json(run));
  const VerdictReport report{verdict,     log.records(), run.model,
                             run.prompts, run.run,       run_files(folder)};
  if (!args.dump_examples.empty()) {
    write_file_atomically(args.dump_examples, examples_text(study, session.tokenizer()));
  }
  write_file_atomically(folder / "decision.json", verdict_json(verdict));
  write_file_atomically(folder / "report.html", verdict_page(report));
  if (!args.junit.empty()) write_file_atomically(args.junit, verdict_junit(report));
  if (args.run.json) {
    fmt::print("{}", verdict_json(verdict));
  } else {
    fmt::print("{}\nreport: {}\n", verdict_markdown(report, terminal_style()),
               (folder / "report.html").string());
  }
  return verdict.exit_code;
}

}  // namespace kv::cli
