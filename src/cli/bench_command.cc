#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "calibrate/fingerprint.h"
#include "checkpoint/hf_config.h"
#include "cli/session.h"
#include "kvscale/error.h"
#include "study/bench.h"
#include "study/bench_history.h"

namespace kv::cli {
namespace {

void print_machine(std::FILE* to, const BenchResult& r, const std::string& model, double load_s) {
  fmt::print(to, "{}, {}, {}; loaded in {:.2f} s, first token {:.2f} s later\n", model,
             machine_name(), r.matmul_kernel, load_s, r.first_token_s);
  fmt::print(to,
             "limits, measured beside each row; the best: memory read {:.1f} GB/s, multiply {:.0f} "
             "GFLOP/s; this model's matmuls at 512 rows alone {:.0f} GFLOP/s\n",
             r.limits.read_gbps, r.limits.multiply_gflops, r.matmul_gflops);
  for (size_t i = 0; i < r.facts.size(); ++i) {
    fmt::print(to, "correctness gate: {}: KLD from BF16 {:.4f} nats over 32 forced tokens ({})\n",
               r.facts[i].arm, r.gate_kld[i], *r.facts[i].kernels.attend.begin());
  }
  if (!r.is_valid) fmt::print(to, "INVALID: the times below are not those of a working model\n");
  fmt::print(to, "\n");
}

void print_markdown(const BenchResult& r) {
  fmt::print("| {:<16} | {:<16} | {:>17} | {:>9} | {:>9} | {:>11} | {:>6} | {:<24} |\n", "cache",
             "test", "t/s", "ms/token", "MB/token", "MFLOP/token", "share", "of the limit");
  fmt::print(
      "| {:-<16} | {:-<16} | {:->16}: | {:->8}: | {:->8}: | {:->10}: | {:->5}: | {:-<24} |\n", "",
      "", "", "", "", "", "", "");
  for (const BenchRow& row : r.rows) {
    const std::string rate =
        fmt::format("{:.2f} ± {:.2f}", row.tokens_per_s, row.tokens_per_s_deviation);
    fmt::print(
        "| {:<16} | {:<16} | {:>17} | {:>9.3f} | {:>9.1f} | {:>11.1f} | {:>5.0f}% | {:<24} |\n",
        row.cache, row.test, rate, row.ms_per_token, static_cast<double>(row.bytes_per_token) / 1e6,
        static_cast<double>(row.flops_per_token) / 1e6, 100 * row.share_of_limit, row.limit);
  }
}

void print_csv(const BenchResult& r) {
  fmt::print(
      "cache,test,arms,n_tokens,n_depth,avg_ts,stddev_ts,ms_per_token,bytes_per_token,flops_per_"
      "token,limit,read_gbps,multiply_gflops,share_of_limit\n");
  for (const BenchRow& row : r.rows) {
    fmt::print("\"{}\",{},{},{},{},{:.3f},{:.3f},{:.4f},{},{},{},{:.2f},{:.1f},{:.4f}\n", row.cache,
               row.test, row.arms, row.tokens, row.depth, row.tokens_per_s,
               row.tokens_per_s_deviation, row.ms_per_token, row.bytes_per_token,
               row.flops_per_token, row.limit, row.limits.read_gbps, row.limits.multiply_gflops,
               row.share_of_limit);
  }
}

nlohmann::ordered_json json_of(const BenchResult& r, const std::string& model, double load_s) {
  nlohmann::ordered_json out = {{"model", model},
                                {"arm", r.facts.front().arm},
                                {"machine", machine_name()},
                                {"read_gbps", r.limits.read_gbps},
                                {"multiply_gflops", r.limits.multiply_gflops},
                                {"matmul_gflops", r.matmul_gflops},
                                {"load_s", load_s},
                                {"first_token_s", r.first_token_s},
                                {"gate_kld", *std::ranges::max_element(r.gate_kld)},
                                {"valid", r.is_valid},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const BenchRow& row : r.rows) {
    out["rows"].push_back({{"test", row.test},
                           {"cache", row.cache},
                           {"arms", row.arms},
                           {"tokens", row.tokens},
                           {"depth", row.depth},
                           {"tokens_per_s", row.tokens_per_s},
                           {"tokens_per_s_deviation", row.tokens_per_s_deviation},
                           {"ms_per_token", row.ms_per_token},
                           {"bytes_per_token", row.bytes_per_token},
                           {"flops_per_token", row.flops_per_token},
                           {"limit", row.limit},
                           {"read_gbps", row.limits.read_gbps},
                           {"multiply_gflops", row.limits.multiply_gflops},
                           {"share_of_limit", row.share_of_limit}});
  }
  return out;
}

/// The speeds beside those of an earlier run; whether one is slower than it may be.
bool print_changes(const BenchResult& r, const BenchArgs& args, double load_s) {
  const auto changes = compare_benches(read_text_file(args.against),
                                       json_of(r, args.model, load_s).dump(), args.against);
  bool is_slower = false;
  for (const BenchChange& one : changes) {
    fmt::print(stderr, "{:<14} {:>10.1f} tokens/s, {:.1f} before: {:+.1f} %{}\n", one.test, one.now,
               one.before, 100 * (one.ratio() - 1), one.is_slower ? ": SLOWER" : "");
    is_slower |= one.is_slower;
  }
  return is_slower;
}

/// The arm's own scales; 1 where it names none, since speed does not depend on them.
std::optional<ScaleTable> scales_for(const ArmSpec& arm, const Checkpoint& checkpoint) {
  if (!arm.needs_scales()) return std::nullopt;
  const ModelSpec& spec = checkpoint.spec();
  if (arm.scale_file.empty())
    return ScaleTable(spec.num_layers, spec.num_kv_heads, "1: bench does not calibrate");
  const Calibration calibration = read_calibration(arm.scale_file);
  CalibrationSource here;  // of what was calibrated with, speed does not depend
  here.model_sha256 = checkpoint.content_sha256();
  check_calibration(calibration, here, spec, arm.scale_file);
  return calibration.scales(arm.layout == ArmLayout::kFp8Head);
}

}  // namespace

int run_bench(const BenchArgs& args) {
  apply_machine_options(args.threads, args.backend);
  BenchOptions options;
  if (!args.prefill.empty()) options.prefill = args.prefill;
  if (!args.depths.empty()) options.depths = args.depths;
  options.tokens = args.tokens;
  options.repetitions = args.repetitions;
  options.lockstep = args.lockstep;
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(model_path(args.model));
  for (const std::string& text : args.arms.empty() ? std::vector<std::string>{"bf16"} : args.arms) {
    const ArmSpec arm = ArmSpec::parse(text);
    if (arm.sink > 0) {
      throw UnsupportedError(fmt::format(
          "bench: --arm {}: needed an arm that is stored as it is named, found a sink, which is "
          "emulated in 16-bit pages",
          text));
    }
    options.caches.push_back({arm, scales_for(arm, *checkpoint)});
  }
  ConsoleProgress progress("run it again");
  const auto model = Model::load(checkpoint);
  const double load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const BenchResult result = kv::run_bench(model, options, progress);
  progress.finish_line();
  if (args.json || args.output == "json") {
    fmt::print("{}\n", json_of(result, args.model, load_s).dump(1));
  } else {
    print_machine(args.output == "md" ? stdout : stderr, result, args.model, load_s);
    args.output == "md" ? print_markdown(result) : print_csv(result);
  }
  const bool is_slower = !args.against.empty() && print_changes(result, args, load_s);
  return result.is_valid && !is_slower ? kExitAccept : kExitInconclusive;
}

}  // namespace kv::cli
