#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/session.h"
#include "decide/verdict_json.h"
#include "kvscale/error.h"
#include "report/verdict_report.h"
#include "study/decide_study.h"
#include "targets/targets.h"
#include "tensor/atomic_file.h"

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
  if (args.target != defaults.target) repeat += " --target " + quoted(args.target);
  if (args.seed != defaults.seed) repeat += fmt::format(" --seed {}", args.seed);
  std::string margin = "--margin " + args.margin;
  if (args.bucket_points > 0) margin += fmt::format(" --margin-bucket {}", args.bucket_points);
  if (args.overall_points > 0) margin += fmt::format(" --margin-overall {}", args.overall_points);
  return {repeat, margin};
}

/// Options about generated documents, where the prompts have answers of their own.
void refuse_generator_options(const DecideArgs& args, const std::vector<Prompt>& prompts) {
  if (std::ranges::none_of(prompts, &Prompt::has_answer)) return;
  const std::pair<const char*, bool> given[] = {{"--tasks", !args.tasks.empty()},
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

DecideOptions decide_options(const DecideArgs& args) {
  DecideOptions options = DecideOptions::named(args.margin);
  if (args.bucket_points > 0) options.margin.bucket = args.bucket_points / 100;
  if (args.overall_points > 0) options.margin.overall = args.overall_points / 100;
  if (args.documents > 0) options.documents = args.documents;
  if (args.questions > 0) options.questions_per_document = args.questions;
  options.target = std::string(find_target(args.target).name);
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
  refuse_doubles("--tasks", args.tasks);
  refuse_generator_options(args, prompts);
  options.tasks = args.tasks;
  options.form =
      session.tokenizer().vocab_size() < kSmallVocabulary ? Form::kCompact : Form::kPlain;
  options.seed = args.seed;
  return options;
}

/// Everything that decides what is run, so that the same command resumes and another one does not.
std::string configuration(const StudyOptions& o) {
  return fmt::format(
      "margin {} {} {}\ndocuments {} questions {}\nbuckets {}\ntasks {}\nseed {}\ntarget "
      "{}\ngenerator {}",
      o.decide.margin.bucket, o.decide.margin.overall, o.decide.margin.validity, o.decide.documents,
      o.decide.questions_per_document, fmt::join(o.buckets, ","),
      o.tasks.empty() ? "piloted" : fmt::format("{}", fmt::join(o.tasks, ",")), o.seed,
      o.decide.target, kGeneratorVersion);
}

}  // namespace

int run_decide(const DecideArgs& args) {
  Session session(args.run);
  const std::vector<Prompt> prompts = session.prompts(StudyOptions{}.max_new_tokens);
  const StudyOptions options = study_options(args, session, prompts);
  check_options(options.decide);
  const auto folder = session.run_folder("decide", configuration(options), prompts);
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "records.jsonl");
  const auto model = session.model(progress);
  DecideStudy study(model, session.tokenizer(), prompts, session.calibration_source(), options,
                    folder, log, progress);
  Verdict verdict = study.run();
  progress.finish_line();
  verdict.notices.insert(verdict.notices.end(), study.notices().begin(), study.notices().end());

  const VerdictReport report{verdict, log.records(), session.model_facts(),
                             session.prompt_facts(prompts),
                             run_facts(log.facts(), args.run.command)};
  write_file_atomically(folder / "decision.json", verdict_json(verdict));
  write_file_atomically(folder / "report.html", verdict_page(report));
  if (args.run.json) {
    fmt::print("{}", verdict_json(verdict));
  } else {
    fmt::print("{}\nreport: {}\n", verdict_markdown(report, terminal_style()),
               (folder / "report.html").string());
  }
  return verdict.exit_code;
}

}  // namespace kv::cli
