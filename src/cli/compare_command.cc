#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "cli/console.h"
#include "cli/reanalysis_args.h"
#include "cli/stored_run.h"
#include "decide/compare_means.h"
#include "decide/compare_scores.h"
#include "evaluate/score_file.h"
#include "kvscale/error.h"
#include "report/compare_report.h"
#include "report/decide_run.h"
#include "report/means_report.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

/// The options of the decide run that the scores lie in, if they do.
std::optional<DecideOptions> run_options(const std::string& name) {
  fs::path folder = name;
  if (fs::is_regular_file(folder)) folder = folder.parent_path();
  if (!fs::is_regular_file(folder / "run.json")) return std::nullopt;
  return read_decide_run(folder / "run.json").options;
}

/// Margins by name or, where nobody names them, those that the two runs were decided by.
DecideOptions preset_of(const CompareArgs& args) {
  if (!args.margin.empty()) return DecideOptions::named(args.margin);
  DecideOptions out = DecideOptions::standard();
  const auto control = run_options(args.control), candidate = run_options(args.candidate);
  if (control && candidate && control->margin != candidate->margin) {
    throw ValueError(fmt::format(
        "compare: {} was decided by {:.4g} points a bucket and {:.4g} overall, {} by {:.4g} and "
        "{:.4g}: choose with --margin",
        args.control, 100 * control->margin.bucket, 100 * control->margin.overall, args.candidate,
        100 * candidate->margin.bucket, 100 * candidate->margin.overall));
  }
  if (control || candidate) out.margin = (control ? control : candidate)->margin;
  return out;
}

DecideOptions options_of(const CompareArgs& args) {
  DecideOptions out = preset_of(args);
  if (args.bucket_points > 0) out.margin.bucket = args.bucket_points / 100;
  if (args.overall_points > 0) out.margin.overall = args.overall_points / 100;
  check_options(out);
  return out;
}

/// records.jsonl of a run's folder, else the path itself.
fs::path score_path(const std::string& name) {
  const fs::path path = name;
  if (!fs::exists(path)) throw IoError(fmt::format("{}: there is no such file", name));
  return fs::exists(path / "records.jsonl") ? path / "records.jsonl" : path;
}

/// The lines of a run's configuration that make its answers comparable with another's: what was
/// asked, of which model, and how answers are judged.
std::string protocol_of(const fs::path& records) {
  const std::string text = read_if_there(records.parent_path() / "configuration.txt");
  std::string out;
  for (const char* field : {"\nmodel ", "\ntokenizer ", "\nprompts ", "\nanswers ", "\nbuckets ",
                            "\ntasks ", "\nseed ", "\ngenerator "}) {
    const size_t at = text.find(field);
    if (at != std::string::npos) out += text.substr(at, text.find('\n', at + 1) - at);
  }
  return out;
}

void expect_same_protocol(const fs::path& control, const fs::path& candidate) {
  const std::string a = protocol_of(control), b = protocol_of(candidate);
  if (a == b || a.empty() || b.empty()) return;
  throw FormatError(fmt::format(
      "compare: {} and {}: expected runs of the same questions, found\n--- {}{}\n--- {}{}",
      control.string(), candidate.string(), control.string(), a, candidate.string(), b));
}

std::string other_arm(const Records& records, const CompareArgs& args, const fs::path& path) {
  if (!args.candidate_arm.empty()) return args.candidate_arm;
  std::vector<std::string> arms = arms_with_examples(records, args.block);
  // "bf16#2" is the control once more, not a candidate.
  std::erase_if(arms, [&](const std::string& arm) {
    return arm == args.control_arm || arm == args.control_arm + "#2";
  });
  if (arms.size() == 1) return arms.front();
  throw ValueError(fmt::format("{}: expected one candidate (choose with --candidate-arm), found {}",
                               path.string(),
                               arms.empty() ? "none" : fmt::format("{}", fmt::join(arms, ", "))));
}

struct Sets {
  ScoreSet control, candidate;
  std::optional<ScoreSet> repeat;
};

Sets sets_of_records(const CompareArgs& args, const fs::path& control, const fs::path& candidate) {
  expect_same_protocol(control, candidate);
  const Records ours = read_records(control), theirs = read_records(candidate);
  const std::string arm = other_arm(theirs, args, candidate);
  const bool is_one_file = fs::equivalent(control, candidate);
  Sets out;
  out.candidate =
      scores_of_records(theirs, candidate, arm, args.block, is_one_file ? args.control_arm : "");
  out.control = scores_of_records(ours, control, args.control_arm, out.candidate.block);
  if (args.repeat.empty()) return out;
  const fs::path again = score_path(args.repeat);
  expect_same_protocol(control, again);
  out.repeat = scores_of_records(read_records(again), again, args.control_arm, out.control.block);
  out.repeat->arm += " again";
  return out;
}

Sets sets_of_samples(const CompareArgs& args, const fs::path& control, const fs::path& candidate) {
  const SampleOptions options{args.metric, args.filter, args.bucket_field, args.cluster_field,
                              args.buckets};
  Sets out{read_sample_logs(control, options), read_sample_logs(candidate, options), {}};
  if (out.control.metric != out.candidate.metric) {
    throw FormatError(fmt::format("{}: expected the metric {} of {}, found {}", candidate.string(),
                                  out.control.metric, control.string(), out.candidate.metric));
  }
  out.control.arm = "control";
  out.candidate.arm = "candidate";
  if (!args.repeat.empty()) {
    out.repeat = read_sample_logs(score_path(args.repeat), options);
    out.repeat->arm = "control again";
  }
  return out;
}

Sets read_sets(const CompareArgs& args) {
  const fs::path control = score_path(args.control), candidate = score_path(args.candidate);
  const bool records = is_record_file(control);
  if (records == is_record_file(candidate)) {
    return records ? sets_of_records(args, control, candidate)
                   : sets_of_samples(args, control, candidate);
  }
  throw FormatError(
      fmt::format("compare: {} and {}: expected two files of one kind, found kvscale's records and "
                  "a sample log",
                  control.string(), candidate.string()));
}

int compare_table(const CompareArgs& args) {
  const BucketMeans means = read_bucket_means(args.table, means_unit(args.unit));
  const MeansComparison result = compare_means(means, DecideOptions().alpha_shift);
  fmt::print("{}", args.json ? means_json(means, result, args.table)
                             : means_text(means, result, args.table, terminal_style()));
  return kExitAccept;
}

}  // namespace

int run_compare(const CompareArgs& args) {
  const bool has_files = !args.control.empty() || !args.candidate.empty() || !args.repeat.empty();
  if (has_files != args.table.empty() || (has_files && args.candidate.empty())) {
    throw ValueError(
        "compare: expected two files, a control's and a candidate's, or --table with a CSV file");
  }
  if (!args.table.empty()) return compare_table(args);
  const Sets sets = read_sets(args);
  const ScoreComparison result = compare_scores(options_of(args), sets.control, sets.candidate,
                                                sets.repeat ? &*sets.repeat : nullptr);
  fmt::print("{}", args.json ? scores_json(result, sets.control, sets.candidate)
                             : scores_text(result, sets.control, sets.candidate, terminal_style()));
  return kExitAccept;
}

}  // namespace kv::cli
