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
  ArmSpec arm;
  std::vector<int64_t> prefill = {512};
  std::vector<int64_t> depths = {0, 2048};
  int64_t tokens = 32;
  int64_t repetitions = 3;
  BatchPlan plan;
};

/// What the machine allows, measured in the same run.
struct MachineLimits {
  double read_gbps = 0;      // memory read, all threads
  double matmul_gflops = 0;  // this model's own matmuls at 512 rows, alone
};

/// One test: n tokens at a depth, median of the repetitions.
struct BenchRow {
  std::string test;  // "pp512", "tg32 @ d2048", as llama-bench names them
  int64_t tokens = 0, depth = 0;
  double ms_per_token = 0, tokens_per_s = 0;
  int64_t bytes_per_token =
      0;  // weights once, and the cache that one token reads; prefill: weights / tokens
  int64_t flops_per_token = 0;  // matmuls and attention
  std::string limit;            // which one it is held against: "matmul", "memory read"
  double share_of_limit = 0;    // limit's time / measured time
};

struct BenchResult {
  std::string arm;
  MachineLimits limits;
  std::vector<BenchRow> rows;
  double gate_kld = 0;    // mean KLD from BF16 over 32 forced tokens
  bool is_valid = false;  // gate_kld is finite and below thresholds::kGateKld
  ArmFacts facts;
  int64_t weight_bytes = 0;
};

/// Runs the correctness gate, then the limits, then the tests.
BenchResult run_bench(const std::shared_ptr<const Model>& model,
                      const std::optional<ScaleTable>& scales, const BenchOptions& options,
                      Progress& progress);

}  // namespace kv
