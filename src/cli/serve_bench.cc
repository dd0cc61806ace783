#include "cli/serve_bench.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "cli/served_servers.h"
#include "cli/session.h"
#include "decide/evidence.h"
#include "decide/timing.h"
#include "evaluate/record_log.h"
#include "kvscale/error.h"
#include "report/text_table.h"
#include "study/load_bench.h"
#include "study/own_text.h"
#include "tensor/atomic_file.h"

namespace kv::cli {

struct ServeBenchArgs {
  DecideArgs servers;
  std::vector<std::string> shapes = {"128x32", "512x64"};
  std::string goodput;
  LoadBenchOptions options;
};

namespace {

using Json = nlohmann::ordered_json;

void add_load(CLI::App* c, ServeBenchArgs& args) {
  LoadBenchOptions& o = args.options;
  c->add_option("--shapes", args.shapes, "tokens of prompts x tokens that are generated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  c->add_flag("--mixed", o.is_mixed, "all shapes in turn, as one more kind of load");
  c->add_option("--rate", o.rate,
                "requests per second, sent at drawn times however slow the server is; latencies "
                "count from these times (default: --concurrency requests at a time)")
      ->check(CLI::Range(1e-6, 1e6));
  c->add_option("--requests", o.requests, "of each run")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  c->add_option("--runs", o.runs, "of each arm and shape; decide wants 5")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  c->add_option("--capacity", o.capacity_limit,
                "how many sequences of the first shape run at once without one being thrown out: "
                "tries up to so many (default: not asked)")
      ->check(CLI::Range(1, 4096));
  c->add_option("--goodput", args.goodput, "limits that requests keep, as \"ttft:500 tpot:50\"");
  c->add_option("--seed", o.seed, "of prompts and times")->capture_default_str();
}

std::string configuration(const ServeBenchArgs& args) {
  const LoadBenchOptions& o = args.options;
  std::string names;  // where they are served may change from one start to the next
  for (const std::string& one : args.servers.candidates)
    names += " " + one.substr(0, one.find('='));
  return fmt::format(
      "shapes {}{}\nrate {} concurrency {} requests {}\nseed {}\ncapacity {}\ngoodput {}\nserved "
      "by {}, "
      "{}{}{}",
      fmt::join(args.shapes, ","), o.is_mixed ? " mixed" : "", o.rate, o.concurrency, o.requests,
      o.seed, o.capacity_limit, args.goodput, served_engine(args.servers),
      args.servers.launch.empty() ? "running" : "launched by " + args.servers.launch,
      args.servers.no_prefix_cache ? "\nwithout prefix cache" : "",
      names.empty() ? "" : "\ncandidates" + names);
}

/// What each run wrote, of this process and of earlier ones, without the times by request.
Json stored_runs(const std::filesystem::path& folder, const RecordLog& log) {
  Json out = Json::array();
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder / "load")) {
    for (const auto& entry : std::filesystem::directory_iterator(folder / "load")) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    Json run = Json::parse(read_text_file(file));
    for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "e2els", "errors",
                            "intended_ms", "sent_late_ms"}) {
      run.erase(key);
    }
    const std::string id =
        fmt::format("timing/{}/{}/{}", run.at("arm").get<std::string>(),
                    run.at("shape").get<std::string>(), run.at("run").get<int64_t>());
    if (log.has(id)) out.push_back(std::move(run));
  }
  return out;
}

Json capacity_json(const std::vector<LoadCapacity>& capacities) {
  Json out = Json::array();
  for (const LoadCapacity& one : capacities) {
    out.push_back({{"arm", one.arm},
                   {"sequences", one.sequences},
                   {"cache_capacity_tokens", one.tokens},
                   {"refused_sequences", one.refused_sequences},
                   {"preemptions", one.preemptions}});
  }
  return out;
}

double median_of(const Json& runs, const std::string& arm, const std::string& label,
                 const std::string& key) {
  std::vector<double> values;
  for (const Json& run : runs) {
    if (run.at("arm") == arm && run.at("shape") == label) values.push_back(run.at(key));
  }
  return spread_of(values).median;
}

void print_text(const LoadBench& bench, const Json& runs, const RecordLog& log) {
  const std::vector<TextColumn> columns = {{"prompt", false, false},  {"arm", false, false},
                                           {"TTFT ms", true, false},  {"p99", true, false},
                                           {"ITL ms", true, false},   {"p99", true, false},
                                           {"TPOT ms", true, false},  {"E2E ms", true, false},
                                           {"tokens/s", true, false}, {"requests/s", true, false}};
  constexpr const char* kKeys[] = {"median_ttft_ms",    "p99_ttft_ms",       "median_itl_ms",
                                   "p99_itl_ms",        "median_tpot_ms",    "median_e2el_ms",
                                   "output_throughput", "request_throughput"};
  std::vector<std::vector<TextCell>> rows;
  for (const std::string& label : bench.labels()) {
    for (const std::string& arm : bench.arms()) {
      std::vector<TextCell> cells = {{label, 0}, {arm, 0}};
      for (const char* key : kKeys) {
        cells.push_back({fmt::format("{:.1f}", median_of(runs, arm, label, key)), 0});
      }
      cells.back() = {fmt::format("{:.2f}", median_of(runs, arm, label, kKeys[7])), 0};
      rows.push_back(std::move(cells));
    }
  }
  TextStyle style = terminal_style();
  style.width = 130;
  fmt::print("{}", text_table(columns, rows, style));
  const std::vector<std::string> arms = bench.arms();
  for (size_t i = 1; i + 1 < arms.size(); ++i) {
    const auto judged =
        judge_timing(DecideOptions::standard(), log.timings(), arms[i], bench.labels());
    if (!judged) continue;
    for (const Reason& reason : judged->reasons) fmt::print("{}\n", reason.text);
    if (!judged->noisy.empty()) fmt::print("{}: proves nothing: {}\n", arms[i], judged->noisy);
  }
  for (const LoadCapacity& one : bench.capacities()) {
    fmt::print("capacity: {}: {} sequences at once, {} tokens{}\n", one.arm, one.sequences,
               one.tokens,
               one.refused_sequences > 0 ? fmt::format("; {} did not fit ({:.0f} thrown out)",
                                                       one.refused_sequences, one.preemptions)
                                         : "; more were not tried");
  }
}

int run_serve_bench(ServeBenchArgs args) {
  if (!names_servers(args.servers)) {
    throw ValueError("bench serve: expected --control and --candidate, or --launch");
  }
  args.servers.sends_once = true;
  args.options.concurrency = args.servers.concurrency;
  args.options.goodput = Goodput::parse(args.goodput);
  for (const std::string& one : args.shapes) {
    args.options.shapes.push_back(parse_load_shape(one));
  }
  Session session(args.servers.run);
  const auto folder = session.run_folder("load", configuration(args), {});
  const auto servers = served_arms(args.servers, folder);
  ConsoleProgress progress(fmt::format("the same command goes on from {}", folder.string()));
  RecordLog log(folder / "timing.jsonl", machine_name());
  LoadBench bench(*servers, session.tokenizer().encode(own_text(), false), args.options, folder,
                  log, progress);
  bench.run();
  progress.finish_line();
  Json out = {{"model", args.servers.run.model},
              {"machine", machine_name()},
              {"runs", stored_runs(folder, log)},
              {"capacity", capacity_json(bench.capacities())}};
  write_file_atomically(folder / "load.json", out.dump(1) + "\n");
  if (args.servers.run.json) {
    fmt::print("{}\n", out.dump(1));
  } else {
    print_text(bench, out["runs"], log);
    fmt::print(
        "times of every request: {}; for a verdict on speed: kvscale decide ... --timing {}\n",
        (folder / "load").string(), (folder / "timing.jsonl").string());
  }
  return kExitAccept;
}

}  // namespace

struct ServeBenchCommand::State {
  ServeBenchArgs args;
  CLI::App* command = nullptr;
};

ServeBenchCommand::ServeBenchCommand(CLI::App& bench) : state_(std::make_unique<State>()) {
  ServeBenchArgs& args = state_->args;
  CLI::App* c = bench.add_subcommand(
      "serve", "servers under load: TTFT, ITL, throughput and capacity of each arm");
  c->add_option("model", args.servers.run.model, "the model that they serve, for its tokenizer")
      ->required();
  add_load(c, args);
  add_servers(c, args.servers);
  c->add_option("--out", args.servers.run.out,
                "folder of the run (default: named by its configuration)");
  c->add_flag("--json", args.servers.run.json, "one JSON object on standard output");
  state_->command = c;
}

ServeBenchCommand::~ServeBenchCommand() = default;

std::optional<int> ServeBenchCommand::run() const {
  if (!state_->command->parsed()) return std::nullopt;
  return run_serve_bench(state_->args);
}

}  // namespace kv::cli
