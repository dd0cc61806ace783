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

constexpr int64_t kOwnTokens = 1088;
// A vocabulary that small belongs to a model that was made for the compact forms.
constexpr int32_t kSmallVocabulary = 4096;

/// As a POSIX shell reads it back.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

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

/// The command line of this run, whole.
std::string this_command(const Commands& commands, const DecideArgs& args) {
  std::string out = commands.repeat + " " + commands.margin;
  if (args.documents > 0) out += fmt::format(" --documents {}", args.documents);
  if (args.questions > 0) out += fmt::format(" --questions {}", args.questions);
  return out;
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
  const std::vector<Prompt> prompts = session.prompts(kOwnTokens);
  const StudyOptions options = study_options(args, session, prompts);
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
                             run_facts(study.facts(), this_command(options.decide.commands, args))};
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
