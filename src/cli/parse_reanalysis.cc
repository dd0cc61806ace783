#include "cli/parse_reanalysis.h"

#include <CLI/CLI.hpp>

#include "cli/reanalysis_args.h"

namespace kv::cli {
namespace {

void add_recompute(CLI::App& app, RecomputeArgs& args) {
  CLI::App* c = app.add_subcommand(
      "recompute",
      "the verdict of a decide run again, from its records; exit code 1 when it differs");
  c->add_option("run", args.folder, "folder of the run")->required();
  c->add_flag("--report", args.report, "rebuild report.html too");
  c->add_option(
      "--out", args.out,
      "folder for what was rebuilt (default: only what the run's folder lacks is written)");
  c->add_option("--junit", args.junit, "write the verdict as JUnit XML to this file");
  c->add_flag("--json", args.json, "the rebuilt decision.json on standard output");
}

void add_report(CLI::App& app, ReportArgs& args) {
  CLI::App* c = app.add_subcommand(
      "report",
      "the page of a decide run from its records; of several runs a page that compares them");
  c->add_option("folders", args.folders, "folders of runs, or folders that hold them")->required();
  c->add_option("--out", args.out,
                "the page (default: report.html in the run's folder; of several runs "
                "kvscale-runs.html here)");
}

void add_compare(CLI::App& app, CompareArgs& args) {
  const CLI::Range kPoints(0.01, 99.0, "POINTS in [0.01, 99]");
  CLI::App* c = app.add_subcommand(
      "compare", "two arms from stored scores, or from a table of means; accepts nothing");
  c->add_option("control", args.control,
                "scores of the control: a run's folder or records.jsonl, or sample logs of "
                "lm-evaluation-harness (samples_*.jsonl, or a folder of them)");
  c->add_option("candidate", args.candidate, "scores of the candidate on the same examples");
  c->add_option("--repeat", args.repeat,
                "scores of the control run once more: what differs without any change");
  CLI::Option* table = c->add_option(
      "--table", args.table, "CSV with the columns bucket, control, candidate instead: means only");
  c->add_option("--unit", args.unit, "of the table's means")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "percent", "share"}))
      ->needs(table);
  c->add_option("--control-arm", args.control_arm, "of kvscale's records")->capture_default_str();
  c->add_option("--candidate-arm", args.candidate_arm,
                "of kvscale's records (default: the only other one)");
  c->add_option("--block", args.block, "of kvscale's records (default: the only one of both arms)");
  c->add_option("--metric", args.metric,
                "field of the sample logs (default: the only one there is)");
  c->add_option("--filter", args.filter, "of the sample logs (default: the only one there is)");
  c->add_option(
      "--bucket-field", args.bucket_field,
      "field of the sample logs that names the bucket, as doc.length (default: one bucket)");
  c->add_option("--buckets", args.buckets,
                "edges, as 4096,8192, for a bucket field that holds numbers")
      ->delimiter(',')
      ->allow_extra_args(false);
  c->add_option(
      "--cluster-field", args.cluster_field,
      "field of the sample logs that names what examples share, as doc.document (default: "
      "every example stands for itself)");
  c->add_option("--margin", args.margin,
                "standard (2 points per bucket, 1 overall) or quick (5 and 2.5) (default: those of "
                "the decide run, else standard)")
      ->check(CLI::IsMember({"standard", "quick"}));
  c->add_option("--margin-bucket", args.bucket_points, "points per bucket, instead of the preset's")
      ->check(kPoints);
  c->add_option("--margin-overall", args.overall_points, "points overall, instead of the preset's")
      ->check(kPoints);
  c->add_flag("--json", args.json, "one JSON object on standard output");
}

}  // namespace

struct ReanalysisCommands::State {
  CLI::App& app;
  RecomputeArgs recompute;
  ReportArgs report;
  CompareArgs compare;
};

ReanalysisCommands::ReanalysisCommands(CLI::App& app) : state_(new State{app, {}, {}, {}}) {
  add_compare(app, state_->compare);
  add_recompute(app, state_->recompute);
  add_report(app, state_->report);
}

ReanalysisCommands::~ReanalysisCommands() = default;

std::optional<int> ReanalysisCommands::run() const {
  if (state_->app.got_subcommand("recompute")) return run_recompute(state_->recompute);
  if (state_->app.got_subcommand("report")) return run_report(state_->report);
  if (state_->app.got_subcommand("compare")) return run_compare(state_->compare);
  return std::nullopt;
}

}  // namespace kv::cli
