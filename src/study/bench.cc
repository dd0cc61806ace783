#include "study/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cpu/read_bandwidth.h"
#include "decide/thresholds.h"
#include "evaluate/logit_metrics.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Tokens of no meaning: speed does not depend on them.
std::vector<int32_t> some_tokens(int64_t n, int64_t vocab) {
  SplitMix64 random(1);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
  return out;
}

int64_t attention_parameters(const ModelSpec& s) {
  const int64_t hidden = s.hidden_size, heads = s.num_q_heads;
  if (!s.latent) return hidden * s.head_dim * (2 * heads + 2 * int64_t{s.num_kv_heads});
  const LatentSpec& latent = *s.latent;
  const int64_t q = heads * (latent.nope_dim + latent.rope_dim);
  const int64_t q_parameters = latent.q_rank > 0 ? latent.q_rank * (hidden + q) : hidden * q;
  return q_parameters + hidden * (s.head_dim + heads * latent.value_dim) +
         heads * latent.kv_rank * (latent.nope_dim + latent.value_dim);
}

/// Of a token: of experts those that it goes to.
int64_t linear_parameters(const ModelSpec& s) {
  int64_t sum = 0;
  for (int layer = 0; layer < s.num_layers; ++layer) {
    int64_t inner = s.num_experts > 0 ? s.dense_intermediate_size : s.intermediate_size;
    if (s.has_experts(layer)) {
      inner = int64_t{s.experts_per_token} * s.intermediate_size + s.shared_intermediate_size;
      sum += int64_t{s.num_experts} * s.hidden_size;
    }
    sum += attention_parameters(s) + 3 * inner * s.hidden_size;
  }
  return sum;
}

int64_t attention_flops(const ModelSpec& s, int64_t keys) {
  int64_t seen = 0;
  for (int layer = 0; layer < s.num_layers; ++layer) {
    const int64_t window = s.window(layer);
    seen += window > 0 ? std::min(window, keys) : keys;
  }
  const int64_t value_dim = s.latent ? s.latent->kv_rank : s.head_dim;
  return 2 * s.num_q_heads * (s.head_dim + value_dim) * seen;
}

/// Linear layers on their own, one layer's worth of each shape, at 512 rows.
double matmul_gflops(const Model& model, int repetitions) {
  constexpr int64_t kRows = 512;
  double best = 0;
  for (int i = 0; i < repetitions; ++i) {
    double flops = 0;
    const double seconds = model.time_matmuls(kRows, flops);
    best = std::max(best, flops / seconds / 1e9);
  }
  return best;
}

double gate_kld(const std::shared_ptr<const Model>& model, const std::optional<ScaleTable>& scales,
                const BenchOptions& options) {
  const std::vector<int32_t> tokens = some_tokens(33, model->spec().vocab_size);
  Engine engine(model, options.plan);
  engine.add_arm(ArmSpec{}, std::nullopt, 64);
  engine.add_arm(options.arm, scales, 64);
  Sequence control = engine.start(0), arm = engine.start(1);
  const std::vector<Request> requests = {{&control, tokens, 0, nullptr},
                                         {&arm, tokens, 0, nullptr}};
  double sum = 0;
  int64_t n = 0;
  engine.run(requests, [&](std::span<const LogitRow> rows) {
    for (size_t i = 0; i + 1 < rows.size(); i += 2) {
      if (rows[i].token >= 32) continue;
      RowMetrics metrics;
      compare_rows(rows[i].logits.data(), rows[i + 1].logits.data(), std::ssize(rows[i].logits),
                   tokens[static_cast<size_t>(rows[i].token) + 1], metrics);
      sum += metrics.finite ? metrics.kld : std::nan("");
      ++n;
    }
  });
  return sum / static_cast<double>(n);
}

/// Every test on one engine, so that they share its cache and its packed weights.
class Bench {
 public:
  Bench(const std::shared_ptr<const Model>& model, const std::optional<ScaleTable>& scales,
        const BenchOptions& options, const MachineLimits& limits)
      : model_(*model), options_(options), limits_(limits), engine_(model, options.plan) {
    int64_t longest = *std::ranges::max_element(options.prefill);
    for (const int64_t depth : options.depths) longest = std::max(longest, depth + options.tokens);
    engine_.add_arm(options.arm, scales, longest + options.plan.block_size);
  }

  BenchRow prefill(int64_t n) {
    const ModelSpec& s = model_.spec();
    const std::vector<int32_t> tokens = some_tokens(n, s.vocab_size);
    std::vector<double> seconds;
    for (int64_t r = 0; r <= options_.repetitions; ++r) {  // the first one is a warm-up
      Sequence sequence = engine_.start(0);
      const Request request{&sequence, tokens, n - 1, nullptr};
      seconds.push_back(seconds_of([&] {
        engine_.run({&request, 1}, [](std::span<const LogitRow>) {});
      }));
    }
    seconds.erase(seconds.begin());
    BenchRow row;
    row.test = fmt::format("pp{}", n);
    row.tokens = n;
    fill(row, median(seconds));
    row.flops_per_token = 2 * linear_parameters(s) + attention_flops(s, (n + 1) / 2);
    row.bytes_per_token = model_.weight_bytes() / n;
    row.limit = "matmul";
    row.share_of_limit = 2.0 * static_cast<double>(linear_parameters(s)) /
                         (limits_.matmul_gflops * 1e9) / (row.ms_per_token * 1e-3);
    return row;
  }

  BenchRow decode(int64_t depth) {
    const ModelSpec& s = model_.spec();
    Sequence sequence = engine_.start(0);
    const std::vector<int32_t> tokens = some_tokens(depth + 1, s.vocab_size);
    if (depth > 0) {
      const Request fill_cache{&sequence, std::span(tokens).first(static_cast<size_t>(depth)), -1,
                               nullptr};
      engine_.run({&fill_cache, 1});
    }
    std::vector<double> seconds;
    for (int64_t r = 0; r <= options_.repetitions; ++r) {
      Sequence fork = sequence.fork();
      Sequence* one = &fork;
      const int32_t first = tokens.back();
      seconds.push_back(seconds_of([&] {
        engine_.generate({&one, 1}, {&first, 1}, options_.tokens, {});
      }));
    }
    seconds.erase(seconds.begin());
    BenchRow row;
    row.test = fmt::format("tg{} @ d{}", options_.tokens, depth);
    row.tokens = options_.tokens;
    row.depth = depth;
    fill(row, median(seconds));
    const int64_t keys = depth + (options_.tokens + 1) / 2;
    row.flops_per_token = 2 * linear_parameters(s) + 2 * int64_t{s.vocab_size} * s.hidden_size +
                          attention_flops(s, keys);
    const CacheBytes cache =
        cache_bytes(model_.geometry(), options_.arm.formats(s.num_layers), keys);
    row.bytes_per_token = model_.weight_bytes() + cache.code_bytes + cache.scale_bytes;
    row.limit = "memory read";
    row.share_of_limit = static_cast<double>(row.bytes_per_token) / (limits_.read_gbps * 1e9) /
                         (row.ms_per_token * 1e-3);
    return row;
  }

  ArmFacts facts() const { return engine_.facts(0); }

 private:
  static void fill(BenchRow& row, double seconds) {
    row.ms_per_token = 1e3 * seconds / static_cast<double>(row.tokens);
    row.tokens_per_s = static_cast<double>(row.tokens) / seconds;
  }

  const Model& model_;
  const BenchOptions& options_;
  const MachineLimits& limits_;
  Engine engine_;
};

}  // namespace

BenchResult run_bench(const std::shared_ptr<const Model>& model,
                      const std::optional<ScaleTable>& scales, const BenchOptions& options,
                      Progress& progress) {
  BenchResult out;
  out.arm = options.arm.text();
  out.weight_bytes = model->weight_bytes();
  out.gate_kld = gate_kld(model, scales, options);
  out.is_valid = std::isfinite(out.gate_kld) && out.gate_kld < thresholds::kGateKld;
  out.limits.read_gbps = cpu::read_bandwidth_gbps(int64_t{1} << 30, 5);
  out.limits.matmul_gflops = matmul_gflops(*model, 5);
  Bench bench(model, scales, options, out.limits);
  const int64_t total = std::ssize(options.prefill) + std::ssize(options.depths);
  for (const int64_t n : options.prefill) {
    progress.update("bench", std::ssize(out.rows), total, "tests");
    progress.check();
    out.rows.push_back(bench.prefill(n));
  }
  for (const int64_t depth : options.depths) {
    progress.update("bench", std::ssize(out.rows), total, "tests");
    progress.check();
    out.rows.push_back(bench.decode(depth));
  }
  progress.update("bench", total, total, "tests");
  out.facts = bench.facts();
  return out;
}

}  // namespace kv
