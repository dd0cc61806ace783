#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "study/progress.h"

namespace kv {

struct BenchOptions {
  struct Cache {
    ArmSpec arm;
    std::optional<ScaleTable> scales;  // static ones; speed does not depend on them
  };
  std::vector<Cache> caches;
  std::vector<int64_t> prefill = {512};
  std::vector<int64_t> depths = {0, 2048};
  int64_t tokens = 32;
  int64_t repetitions = 3;
  /// With several caches: rows of all of them in one batch too, as an evaluation runs them.
  bool lockstep = false;
  BatchPlan plan;
};

/// What the machine allows, measured before each length: the clock of a shared machine drifts.
struct MachineLimits {
  double read_gbps = 0;        // memory read, all threads
  double multiply_gflops = 0;  // the multiply-add that the kernels use, operands in registers
};

/// One test: n tokens at a depth, median of the repetitions, which take turns with those of the
/// other caches.
struct BenchRow {
  std::string test;   // "pp512", "tg32 @ d2048", as llama-bench names them
  std::string cache;  // the arm; "N arms" in lockstep
  int64_t arms = 1;
  int64_t tokens = 0, depth = 0;                        // of each arm
  double ms_per_token = 0;                              // of all arms together
  double tokens_per_s = 0, tokens_per_s_deviation = 0;  // tokens of all arms; over the repetitions
  /// Weights once, and the cache that a token of every arm reads; prefill: weights / tokens.
  int64_t bytes_per_token = 0;
  int64_t flops_per_token = 0;  // matmuls and attention of every arm
  /// "memory read" (decode), "multiply" (prefill), or both one after the other (decode in
  /// lockstep, where neither is negligible).
  std::string limit;
  MachineLimits limits;
  double share_of_limit = 0;  // limit's time / measured time
};

struct BenchResult {
  MachineLimits limits;      // the best seen
  double matmul_gflops = 0;  // this model's own matmuls at 512 rows, alone
  double first_token_s = 0;  // the first pass over 16 tokens, and a token
  std::vector<BenchRow> rows;
  std::vector<double> gate_kld;  // of each cache: mean KLD from BF16 over 32 forced tokens
  bool is_valid = false;         // all are finite and below thresholds::kGateKld
  int64_t weight_bytes = 0;
  std::string matmul_kernel;
  std::vector<ArmFacts> facts;  // of each cache
};

/// Runs the correctness gate, then the tests, limits beside each.
BenchResult run_bench(const std::shared_ptr<const Model>& model, const BenchOptions& options,
                      Progress& progress);

}  // namespace kv
