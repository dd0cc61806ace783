#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::cli {

/// What commands over a model share.
struct RunArgs {
  std::string model;
  std::string prompts;  // file; empty = the command's own text
  std::string out;      // folder of the run; empty = named by the configuration
  bool json = false;
  int64_t threads = 0;  // 0 = all
  std::string backend;  // SIMD target; empty = the best one
  std::string command;  // this command line, as a shell reads it back
};

struct PlanArgs {
  std::string model;
  int64_t layers = 0, kv_heads = 0, head_dim = 0;
  int64_t context = 0, block_size = 16;
  double budget_gib = 0;
  std::vector<int64_t> bf16_layers;
  bool json = false;
};

struct ScanArgs {
  RunArgs run;
  int64_t stride = 16;
  std::string rounding = "nearest";
  bool no_bf16_layers = false;
};

struct CalibrateArgs {
  RunArgs run;
  std::string estimator = "amax";
  int64_t warmup = 0;  // only so many requests; 0 = all
};

/// How answers and continuations are decoded; greedy unless the temperature is above 0.
struct SamplingArgs {
  double temperature = 0, top_p = 1;
  int64_t samples = 0;  // of each question; 0: nobody said
};

struct EvalArgs {
  RunArgs run;
  std::vector<std::string> arms;
  std::vector<int64_t> buckets;
  int64_t generate = 0;  // tokens after each prompt, each arm its own
  int64_t forced = 0;    // tokens of the control's after each prompt, for all arms
  SamplingArgs sampling;
  uint64_t seed = 20260;  // of the samples
};

struct DecideArgs {
  RunArgs run;
  std::string margin = "standard";
  bool is_margin_given = false;
  double budget_minutes = 0;  // 0 = as long as the margin takes
  std::vector<int64_t> buckets;
  std::vector<std::string> tasks;
  int64_t documents = 0, questions = 0;  // per bucket, per document; 0 = what the margin needs
  std::string
      target;  // empty: nobody said which engine; its flags are vLLM's, its numerics nobody's
  std::vector<std::string> set;  // NAME=VALUE
  uint64_t seed = 20260;
  std::string junit;   // file; empty = none
  std::string timing;  // records of the serving engine's speed; empty = none
  std::string estimator = "amax";
  std::string dump_examples;  // a file; empty: nobody asked for it
  SamplingArgs sampling;
  double bucket_points = 0, overall_points = 0;  // 0 = the preset's
  // Servers that answer instead of kvscale's own engine: running ones, or a command that starts
  // one.
  std::string control, launch, engine, server_model, api_key_env, api_key_file;
  std::vector<std::string> candidates;  // ARM=URL, with `launch` ARM
  int64_t concurrency = 4;
  bool no_prefix_cache = false;
  bool sends_once = false;  // no request is tried again: under load that would hide its time
};

struct BenchArgs {
  std::string model;
  std::vector<int64_t> prefill, depths;
  std::vector<std::string> arms;  // none: bf16
  int64_t tokens = 32, repetitions = 3;
  bool lockstep = false, json = false;
  std::string output = "md", device = "cpu";
  std::string against;  // an earlier output of --json; empty: none
  int64_t threads = 0;
  std::string backend;
};

struct PlantArgs {
  std::string kind, model, out;
  std::vector<int64_t> layers;
  std::string side = "k";
  double size = 192;
};

/// Each returns the exit code, prints its result on standard output and all else on standard error.
int run_plan(const PlanArgs& args);
int run_scan(const ScanArgs& args);
int run_calibrate(const CalibrateArgs& args);
int run_eval(const EvalArgs& args);
int run_decide(const DecideArgs& args);
int run_bench(const BenchArgs& args);
int run_bench_error(const BenchArgs& args);
int run_plant(const PlantArgs& args);

/// A word as a POSIX shell reads it back.
std::string quoted(const std::string& word);

/// Reads the command line and calls the command.
int dispatch(int argc, const char* const* argv);

}  // namespace kv::cli
