#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "checkpoint/plant.h"
#include "cli/args.h"
#include "cli/kernel_bench.h"
#include "cli/parse_reanalysis.h"
#include "cli/parse_scales.h"
#include "cli/sampling_args.h"
#include "cli/serve_bench.h"
#include "cli/served_servers.h"
#include "decide/thresholds.h"
#include "evaluate/generation.h"
#include "evaluate/generators.h"
#include "kvscale/error.h"
#include "kvscale/version.h"
#include "study/study_options.h"
#include "text/edit_distance.h"

namespace kv::cli {
namespace {

/// A check whose message names what is expected; the library's own prints the largest double.
constexpr int64_t kMostLayers = 100'000;  // more than any model, and small enough to list

CLI::Validator whole_from(int64_t least) {
  const auto check = [least](const std::string& word) {
    int64_t value = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error == std::errc{} && stop == end && value >= least) return std::string();
    return fmt::format("expected a whole number from {} on, found \"{}\"", least, word);
  };
  return CLI::Validator(check, fmt::format("from {}", least));
}

void add_run_options(CLI::App* command, RunArgs& args, const std::string& without_prompts) {
  command
      ->add_option("model", args.model,
                   "a .gguf file, a Hugging Face directory, or tiny (built in)")
      ->required();
  command->add_option("--prompts", args.prompts,
                      "JSON Lines with id and prompt, messages or ids, and answer(s), or a .txt "
                      "file; without it: " +
                          without_prompts);
  command->add_option("--out", args.out,
                      "folder of the run (default: a name from the configuration; the same command "
                      "resumes there)");
  command->add_flag("--json", args.json, "one JSON object on standard output");
  command->add_option("--threads", args.threads, "CPU threads (default: all)")
      ->check(whole_from(1));
  command->add_option("--backend", args.backend,
                      "force a SIMD target (amx, avx3_bf16, avx3_dl, avx3, avx2, scalar)");
}

void add_plan(CLI::App& app, PlanArgs& args) {
  CLI::App* c = app.add_subcommand("plan", "bytes per token and tokens that fit, per layout");
  c->add_option("model", args.model,
                "a .gguf file, a Hugging Face directory, or tiny; or give the geometry:");
  c->add_option("--layers", args.layers, "layers")
      ->check(whole_from(1))
      ->check(CLI::Range(int64_t{1}, kMostLayers));
  c->add_option("--kv-heads", args.kv_heads, "KV heads")->check(whole_from(1));
  c->add_option("--head-dim", args.head_dim, "values per head")->check(whole_from(1));
  c->add_option("--context", args.context, "tokens (default: the model's context)")
      ->check(whole_from(1));
  c->add_option("--block-size", args.block_size, "tokens per block")
      ->capture_default_str()
      ->check(whole_from(1));
  c->add_option("--budget", args.budget_gib, "GiB for the cache: prints the tokens that fit")
      ->check(CLI::Range(1e-6, 1e9, "GIB"));
  c->add_option("--bf16-layers", args.bf16_layers, "layers kept in BF16, as 0,1")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_from(0));
  c->add_flag("--json", args.json, "one JSON object on standard output");
}

void add_scan(CLI::App& app, ScanArgs& args) {
  CLI::App* c =
      app.add_subcommand("scan", "the one-minute answer: which layers break under which layout");
  add_run_options(c, args.run, "a text of kvscale's own");
  c->add_option("--stride", args.stride, "measure every so-manyth query, from position 64 on")
      ->capture_default_str()
      ->check(whole_from(1));
  c->add_option("--round", args.rounding, "rounding of the cache write")
      ->capture_default_str()
      ->check(CLI::IsMember({"nearest", "truncate"}));
  c->add_flag("--no-bf16-layers", args.no_bf16_layers,
              "do not run the layouts with the worst layers kept in BF16");
}

void add_estimator(CLI::App* command, std::string& estimator) {
  command
      ->add_option(
          "--estimator", estimator,
          "what a scale covers: amax, percentile:99.99 (of |x|; the rest clips), mse (least "
          "square error of 64 candidates) or pow2 (amax, a power of two)")
      ->capture_default_str();
}

void add_sampling(CLI::App* command, SamplingArgs& args, const std::string& what) {
  command->add_option("--temperature", args.temperature,
                      "above 0: " + what +
                          " sampled, with the same random numbers under every arm (default: 0, "
                          "greedy)");
  command->add_option("--top-p", args.top_p,
                      "sample from the fewest most probable tokens that hold this share");
  command
      ->add_option("--samples", args.samples,
                   fmt::format("of each, with a temperature (default: {})", kSamples))
      ->check(whole_from(1));
}

void add_calibrate(CLI::App& app, CalibrateArgs& args) {
  CLI::App* c = app.add_subcommand("calibrate", "a scale file from the user's prompts");
  add_run_options(c, args.run, "refused: scales come from what will be served");
  add_estimator(c, args.estimator);
  c->add_option(
       "--warmup", args.warmup,
       "scales from the first N prompts alone, as engines did at start, and what the others "
       "then lose")
      ->check(whole_from(1));
}

void add_eval(CLI::App& app, EvalArgs& args) {
  CLI::App* c = app.add_subcommand("eval", "logit metrics of named arms, per position bucket");
  add_run_options(c, args.run, "a text of kvscale's own");
  c->add_option(
       "--arms", args.arms,
       "an arm beside bf16, as fp8_tensor/bf16=0,3k; give the option once for each arm, or "
       "write fp8_scale1,fp8_tensor")
      ->required()
      ->allow_extra_args(false);
  c->add_option("--buckets", args.buckets,
                "edges of position buckets, as 256,512 (default: powers of two)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_from(1));
  c->add_option("--generate", args.generate,
                fmt::format("let every arm go on for N tokens after each prompt, at most {}, and "
                            "say where it leaves BF16's way",
                            kMostRecordedIds))
      ->check(whole_from(1));
  c->add_option("--forced", args.forced,
                "let BF16 go on for N tokens after each prompt and feed these to all arms: what "
                "a long generation adds up to, by buckets of generated tokens")
      ->check(whole_from(1));
  add_sampling(c, args.sampling, "continuations are");
  c->add_option("--seed", args.seed, "of the samples")->capture_default_str();
}

std::vector<std::string> task_words() {
  std::vector<std::string> out = generator_tasks();
  out.push_back(kAllTasks);
  return out;
}

/// What has to be shown.
void add_margin(CLI::App* c, DecideArgs& args) {
  const CLI::Range kPoints(0.01, 99.0, "POINTS in [0.01, 99]");
  c->add_option_function<std::string>(
       "--margin",
       [&args](const std::string& name) {
         args.margin = name;
         args.is_margin_given = true;
       },
       "standard (2 points per bucket, 1 overall) or quick (5 and 2.5) (default: standard)")
      ->check(CLI::IsMember({"standard", "quick"}));
  c->add_option("--margin-bucket", args.bucket_points,
                "points per bucket (default: the preset's, 2 or 5)")
      ->check(kPoints);
  c->add_option("--margin-overall", args.overall_points,
                "points overall (default: the preset's, 1 or 2.5)")
      ->check(kPoints);
}

/// What it is shown on.
void add_plan_of_decide(CLI::App* c, DecideArgs& args) {
  c->add_option("--budget", args.budget_minutes,
                "minutes that the run may take: a pilot's speed and flips choose margin (unless "
                "--margin is given), lengths and looks before it begins, and the verdict says what "
                "was cut (default: none)")
      ->check(CLI::Range(0.1, 1e6, "MINUTES from 0.1"));
  c->add_option("--buckets", args.buckets,
                "prompt lengths in tokens, as 512,1024,2048 (default: these, or powers of two that "
                "the prompts reach and the model's context holds)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_from(1));
  c->add_option(
       "--tasks", args.tasks,
       fmt::format("{} (default: those of {} that the control answers in a pilot); all: those of "
                   "all of them that it answers",
                   fmt::join(generator_tasks(), ", "), fmt::join(default_tasks(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(task_words()));
  c->add_option("--documents", args.documents,
                fmt::format("documents per bucket and block (default: {} under standard, {} under "
                            "quick)",
                            thresholds::kDocumentsStandard, thresholds::kDocumentsQuick))
      ->check(whole_from(2));
  c->add_option("--questions", args.questions,
                fmt::format("questions per document (default: {} under standard, {} under quick)",
                            thresholds::kQuestionsStandard, thresholds::kQuestionsQuick))
      ->check(whole_from(1));
}

void add_decide(CLI::App& app, DecideArgs& args) {
  CLI::App* c =
      app.add_subcommand("decide", "the main job: which layout this model should use, and why");
  add_run_options(c, args.run, "generated tasks and a text of kvscale's own");
  add_margin(c, args);
  add_plan_of_decide(c, args);
  c->add_option(
      "--target", args.target,
      "the engine that will serve, as in `kvscale targets`, with @DEVICE where one is meant "
      "(vllm:flash_attn3@h100): its layouts, its numerics, and at the end its directory (default: "
      "none is assumed, flags are printed for vLLM)");
  c->add_option("--set", args.set,
                "NAME=VALUE of any number that the verdict lists (alpha.accept=0.01, looks=0.5,1, "
                "traffic=512:0.7,2048:0.3, strict=true); give the option once for each")
      ->allow_extra_args(false);
  const auto sets = [&args](const char* assignment) {
    return [&args, assignment](int64_t) { args.set.emplace_back(assignment); };
  };
  c->add_flag_function("--strict", sets("strict=true"),
                       "divide the level of acceptance by the number of layouts that may be tried");
  c->add_flag_function("--exhaustive", sets("exhaustive=true"),
                       "try every layout that the target runs, suggested or not");
  c->add_option_function<std::string>(
      "--traffic", [&args](const std::string& shares) { args.set.push_back("traffic=" + shares); },
      "BUCKET:SHARE,... of every length, in any unit (default: equal shares)");
  c->add_option("--seed", args.seed, "of the generated documents, and of sampled answers")
      ->capture_default_str();
  c->add_option(
      "--timing", args.timing,
      "timing records of the engine that serves (JSON Lines, docs/formats/run-folder.md): "
      "speed is judged only with them (default: none)");
  c->add_option("--junit", args.junit, "write the verdict as JUnit XML to this file");
  add_estimator(c, args.estimator);
  add_sampling(c, args.sampling, "answers are");
  c->add_option("--dump-examples", args.dump_examples,
                "a file for the generated questions that the run used, as JSON Lines");
  add_servers(c, args);
}

void add_plant(CLI::App& app, PlantArgs& args) {
  CLI::App* c = app.add_subcommand(
      "plant", "rewrite a model so that the right verdict is known beforehand, to try kvscale on");
  c->add_option("kind", args.kind,
                "benign (scale 1.0 stays right), clipping (needs a scale per tensor), "
                "head-dispersion (needs one per KV head) or offset (layers that no scale helps)")
      ->required()
      ->check(CLI::IsMember(plant_kinds()));
  c->add_option("model", args.model, "a Hugging Face directory, or tiny (built in)")->required();
  c->add_option("--out", args.out, "the directory to make")->required();
  c->add_option("--layers", args.layers, "that are rewritten (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_from(0));
  c->add_option("--side", args.side, "of clipping: k or v")
      ->capture_default_str()
      ->check(CLI::IsMember({"k", "v"}));
  c->add_option("--size", args.size, "of offset: the constant that is added to the keys")
      ->capture_default_str();
}

void add_model_bench_options(CLI::App* c, BenchArgs& args, const char* model_help) {
  c->add_option("model", args.model, model_help);
  c->add_option("-p,--n-prompt", args.prefill, "prompt lengths (default: 512)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_from(1));
  c->add_option("-d,--n-depth", args.depths,
                "tokens in the cache before decoding (default: 0,2048)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_from(0));
  c->add_option("-n,--n-gen", args.tokens, "tokens to decode")
      ->capture_default_str()
      ->check(whole_from(1));
  c->add_option("-r,--repetitions", args.repetitions, "runs of each, in turns; the median counts")
      ->capture_default_str()
      ->check(whole_from(1));
  c->add_option("--arm,--cache-type", args.arms,
                "how the cache is stored, again for more of them (default: bf16)")
      ->allow_extra_args(false);
  c->add_flag("--lockstep", args.lockstep, "also all of them in one batch, as eval runs them");
  c->add_option("--against", args.against,
                "an earlier output of --json: what is more than 10 % slower ends in exit code 10");
  c->add_option("-t,--threads", args.threads, "CPU threads (default: all)")->check(whole_from(1));
  c->add_option("--device", args.device, "where: cpu")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu"}));
  c->add_option("--backend", args.backend, "force a SIMD target");
  c->add_option("-o,--output", args.output, "md, csv or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"md", "csv", "json"}));
  c->add_flag("--json", args.json, "one JSON object on standard output, as -o json");
}

CLI::App& add_bench(CLI::App& app, BenchArgs& args) {
  CLI::App* c = app.add_subcommand(
      "bench", "whole-model speed beside the machine's limits measured in the same run");
  c->require_subcommand(0, 1);
  add_model_bench_options(c, args,
                          "a .gguf file, a Hugging Face directory, or tiny (built in); fp8-error: "
                          "what FP8 does to attention on random numbers, without a model; or one "
                          "op's bench:");
  return *c;
}

/// `bench model MODEL`: the same, with the flags behind the word.
CLI::App* add_model_bench(CLI::App& bench, BenchArgs& args) {
  CLI::App* c = bench.add_subcommand(
      "model", "the same as bench MODEL: prefill and decode as llama-bench names them");
  add_model_bench_options(c, args, "a .gguf file, a Hugging Face directory, or tiny (built in)");
  return c;
}

/// A first word that is no command, with the one that may be meant.
void refuse_unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string_view word = argv[1];
  if (std::ranges::find(names, word) != names.end()) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view near = nearest_word(word, known);
  throw ValueError(fmt::format("command: expected one of {}, found \"{}\"{}",
                               fmt::join(names, ", "), word,
                               near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

}  // namespace

void add_servers(CLI::App* c, DecideArgs& args) {
  c->add_option(
      "--control", args.control,
      "URL of a server with a 16-bit cache: servers answer instead of kvscale's own engine "
      "(docs/engines.md)");
  c->add_option("--candidate", args.candidates,
                "ARM=URL of a server with this cache, as fp8_tensor=http://host:8001; give the "
                "option once for each. With --launch: ARM")
      ->allow_extra_args(false);
  c->add_option("--launch", args.launch,
                "a shell command with {model}, {port} and {flags} that starts a server: arms are "
                "served one after the other");
  c->add_option("--engine", args.engine,
                "what serves: vllm, sglang, tensorrt-llm or llama-server, with its backend where "
                "one is meant (vllm:cpu); default: vllm");
  c->add_option("--server-model", args.server_model,
                "the model as the servers name it (default: the one that they serve)");
  c->add_option("--concurrency", args.concurrency, "documents that are asked about at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_flag("--no-prefix-cache", args.no_prefix_cache,
              "no question may be answered from a server's prefix cache (vllm)");
  c->add_option("--api-key-env", args.api_key_env,
                "environment variable that holds the servers' key");
  c->add_option("--api-key-file", args.api_key_file, "file that holds the servers' key");
}

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

int dispatch(int argc, const char* const* argv) {
  CLI::App app("kvscale: how should this model's KV cache be stored in FP8, and what does it cost?",
               "kvscale");
  app.set_version_flag("--version", std::string("kvscale ") + kVersion);
  app.require_subcommand(0, 1);
  PlanArgs plan;
  ScanArgs scan;
  CalibrateArgs calibrate;
  EvalArgs eval;
  DecideArgs decide;
  BenchArgs bench;
  PlantArgs plant;
  add_plan(app, plan);
  add_scan(app, scan);
  add_calibrate(app, calibrate);
  add_eval(app, eval);
  add_decide(app, decide);
  CLI::App& bench_app = add_bench(app, bench);
  const KernelBenchCommands kernel_benches(bench_app);
  const ServeBenchCommand serve_bench(bench_app);
  add_model_bench(bench_app, bench);
  add_plant(app, plant);
  const ScaleCommands scale_commands(app);
  const ReanalysisCommands reanalysis_commands(app);
  std::string command = "kvscale";
  for (int i = 1; i < argc; ++i) command += " " + quoted(argv[i]);
  scan.run.command = calibrate.run.command = eval.run.command = decide.run.command = command;
  refuse_unknown_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kExitUsage;
  }
  if (app.got_subcommand("plan")) return run_plan(plan);
  if (app.got_subcommand("scan")) return run_scan(scan);
  if (app.got_subcommand("calibrate")) return run_calibrate(calibrate);
  if (app.got_subcommand("eval")) return run_eval(eval);
  if (app.got_subcommand("decide")) return run_decide(decide);
  if (app.got_subcommand("plant")) return run_plant(plant);
  if (const auto code = kernel_benches.run()) return *code;
  if (const auto code = serve_bench.run()) return *code;
  if (app.got_subcommand("bench")) {
    if (bench.model.empty())
      throw ValueError("bench: expected a model, attention, append or serve");
    return bench.model == "fp8-error" ? run_bench_error(bench) : run_bench(bench);
  }
  if (const auto code = scale_commands.run()) return *code;
  if (const auto code = reanalysis_commands.run()) return *code;
  fmt::print("{}", app.help());
  return 0;
}

}  // namespace kv::cli
