#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "calibrate/fingerprint.h"
#include "checkpoint/hf_config.h"
#include "cli/session.h"
#include "kvscale/error.h"
#include "study/bench.h"
#include "study/bench_history.h"

namespace kv::cli {
namespace {

void print_text(const BenchResult& r, const std::string& model) {
  fmt::print("{}, cache {}, {}\n", model, r.arm, machine_name());
  fmt::print(
      "limits measured now: memory read {:.1f} GB/s, this model's matmuls at 512 rows {:.0f} "
      "GFLOP/s\n",
      r.limits.read_gbps, r.limits.matmul_gflops);
  fmt::print("correctness gate: KLD from BF16 {:.4f} nats over 32 forced tokens{}\n\n", r.gate_kld,
             r.is_valid ? "" : ": INVALID, the times below are not those of a working model");
  fmt::print("{:<14} {:>10} {:>12} {:>12} {:>14} {:>8}  {}\n", "test", "tokens/s", "ms/token",
             "MB/token", "MFLOP/token", "share", "of the limit");
  for (const BenchRow& row : r.rows) {
    fmt::print("{:<14} {:>10.1f} {:>12.3f} {:>12.1f} {:>14.1f} {:>7.0f}%  {}\n", row.test,
               row.tokens_per_s, row.ms_per_token, static_cast<double>(row.bytes_per_token) / 1e6,
               static_cast<double>(row.flops_per_token) / 1e6, 100 * row.share_of_limit, row.limit);
  }
}

nlohmann::ordered_json json_of(const BenchResult& r, const std::string& model) {
  nlohmann::ordered_json out = {{"model", model},
                                {"arm", r.arm},
                                {"machine", machine_name()},
                                {"read_gbps", r.limits.read_gbps},
                                {"matmul_gflops", r.limits.matmul_gflops},
                                {"gate_kld", r.gate_kld},
                                {"valid", r.is_valid},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const BenchRow& row : r.rows) {
    out["rows"].push_back({{"test", row.test},
                           {"tokens", row.tokens},
                           {"depth", row.depth},
                           {"tokens_per_s", row.tokens_per_s},
                           {"ms_per_token", row.ms_per_token},
                           {"bytes_per_token", row.bytes_per_token},
                           {"flops_per_token", row.flops_per_token},
                           {"limit", row.limit},
                           {"share_of_limit", row.share_of_limit}});
  }
  return out;
}

/// The speeds beside those of an earlier run; whether one is slower than it may be.
bool print_changes(const BenchResult& r, const BenchArgs& args) {
  const auto changes =
      compare_benches(read_text_file(args.against), json_of(r, args.model).dump(), args.against);
  bool is_slower = false;
  for (const BenchChange& one : changes) {
    fmt::print(stderr, "{:<14} {:>10.1f} tokens/s, {:.1f} before: {:+.1f} %{}\n", one.test, one.now,
               one.before, 100 * (one.ratio() - 1), one.is_slower ? ": SLOWER" : "");
    is_slower |= one.is_slower;
  }
  return is_slower;
}

}  // namespace

int run_bench(const BenchArgs& args) {
  apply_machine_options(args.threads, args.backend);
  BenchOptions options;
  options.arm = ArmSpec::parse(args.arm);
  if (options.arm.sink > 0) {
    throw UnsupportedError(fmt::format(
        "bench: --arm {}: needed an arm that is stored as it is named, found a sink, which is "
        "emulated in 16-bit pages",
        args.arm));
  }
  if (!args.prefill.empty()) options.prefill = args.prefill;
  if (!args.depths.empty()) options.depths = args.depths;
  options.tokens = args.tokens;
  options.repetitions = args.repetitions;
  const std::shared_ptr<const Checkpoint> checkpoint = Checkpoint::open(model_path(args.model));
  std::optional<ScaleTable> scales;
  if (options.arm.needs_scales()) {
    if (options.arm.scale_file.empty()) {
      throw ValueError(
          fmt::format("bench: arm {}: expected /scales=FILE, bench does not calibrate", args.arm));
    }
    const Calibration calibration = read_calibration(options.arm.scale_file);
    CalibrationSource here;  // of what was calibrated with, speed does not depend
    here.model_sha256 = checkpoint->content_sha256();
    check_calibration(calibration, here, checkpoint->spec(), options.arm.scale_file);
    scales = calibration.scales(options.arm.layout == ArmLayout::kFp8Head);
  }
  ConsoleProgress progress("run it again");
  const auto model = Model::load(checkpoint);
  const BenchResult result = kv::run_bench(model, scales, options, progress);
  progress.finish_line();
  if (args.json) {
    fmt::print("{}\n", json_of(result, args.model).dump(1));
  } else {
    print_text(result, args.model);
  }
  const bool is_slower = !args.against.empty() && print_changes(result, args);
  return result.is_valid && !is_slower ? kExitAccept : kExitInconclusive;
}

}  // namespace kv::cli
