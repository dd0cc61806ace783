#include "study/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cpu/gemm_bf16.h"
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

double gate_kld(const std::shared_ptr<const Model>& model, const BenchOptions::Cache& cache,
                const BatchPlan& plan) {
  const std::vector<int32_t> tokens = some_tokens(33, model->spec().vocab_size);
  Engine engine(model, plan);
  engine.add_arm(ArmSpec{}, std::nullopt, 64);
  engine.add_arm(cache.arm, cache.scales, 64);
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

double deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double x : values) sum += x;
  const double n = static_cast<double>(values.size()), mean = sum / n;
  for (const double x : values) squares += (x - mean) * (x - mean);
  return n > 1 ? std::sqrt(squares / (n - 1)) : 0;
}

MachineLimits measure_limits() {
  return {cpu::read_bandwidth_gbps(int64_t{1} << 28, 4), cpu::multiply_rate_gflops(4)};
}

/// Every test on one engine, so that they share its caches and its packed weights.
class Bench {
 public:
  Bench(const std::shared_ptr<const Model>& model, const BenchOptions& options)
      : model_(*model), options_(options), engine_(model, options.plan) {
    int64_t longest = 0;
    for (const int64_t n : options.prefill) longest = std::max(longest, n);
    for (const int64_t depth : options.depths) longest = std::max(longest, depth + options.tokens);
    for (const BenchOptions::Cache& cache : options.caches) {
      groups_.push_back({engine_.num_arms()});
      engine_.add_arm(cache.arm, cache.scales, 2 * longest + 2 * options.plan.block_size);
    }
    if (!options.lockstep || groups_.size() < 2) return;
    std::vector<int> all;
    for (const auto& group : groups_) all.push_back(group[0]);
    groups_.push_back(all);
  }

  double first_token_s() {
    const std::vector<int32_t> tokens = some_tokens(16, model_.spec().vocab_size);
    return seconds_of([&] { prefill_once(groups_[0], tokens); });
  }

  void prefill(int64_t n, std::vector<BenchRow>& rows) {
    const std::vector<int32_t> tokens = some_tokens(n, model_.spec().vocab_size);
    const std::vector<std::vector<double>> seconds = take_turns([&](const std::vector<int>& arms) {
      return seconds_of([&] { prefill_once(arms, tokens); });
    });
    for (size_t g = 0; g < groups_.size(); ++g) {
      BenchRow row = row_for(groups_[g], fmt::format("pp{}", n), n, 0, seconds[g]);
      row.bytes_per_token = model_.weight_bytes() / n;
      row.flops_per_token = row.arms * (2 * linear_parameters(model_.spec()) +
                                        attention_flops(model_.spec(), (n + 1) / 2));
      row.limit = "multiply";
      set_share(row, 0, static_cast<double>(row.flops_per_token));
      rows.push_back(row);
    }
  }

  void decode(int64_t depth, std::vector<BenchRow>& rows) {
    const ModelSpec& s = model_.spec();
    const std::vector<int32_t> tokens = some_tokens(depth + 1, s.vocab_size);
    std::vector<Sequence> sequences;
    for (int arm = 0; arm < engine_.num_arms(); ++arm) {
      Sequence& sequence = sequences.emplace_back(engine_.start(arm));
      if (depth == 0) continue;
      const Request fill{&sequence, std::span(tokens).first(static_cast<size_t>(depth)), -1,
                         nullptr};
      engine_.run({&fill, 1});
    }
    const std::vector<std::vector<double>> seconds = take_turns([&](const std::vector<int>& arms) {
      std::vector<Sequence> forks;
      std::vector<Sequence*> pointers;
      for (const int arm : arms) forks.push_back(sequences[static_cast<size_t>(arm)].fork());
      for (Sequence& fork : forks) pointers.push_back(&fork);
      const std::vector<int32_t> first(arms.size(), tokens.back());
      return seconds_of([&] { engine_.generate(pointers, first, options_.tokens, {}); });
    });
    for (size_t g = 0; g < groups_.size(); ++g) rows.push_back(decode_row(g, depth, seconds[g]));
  }

  const Engine& engine() const { return engine_; }
  const MachineLimits& limits() const { return limits_; }

 private:
  void prefill_once(const std::vector<int>& arms, const std::vector<int32_t>& tokens) {
    std::vector<Sequence> sequences;
    std::vector<Request> requests;
    for (const int arm : arms) sequences.push_back(engine_.start(arm));
    for (Sequence& sequence : sequences)
      requests.push_back({&sequence, tokens, std::ssize(tokens) - 1, nullptr});
    engine_.run(requests, [](std::span<const LogitRow>) {});
  }

  /// time(group) of every group, again and again in turns; the first round is a warm-up.
  template <class Time>
  std::vector<std::vector<double>> take_turns(const Time& time) {
    limits_ = measure_limits();
    std::vector<std::vector<double>> out(groups_.size());
    for (int64_t r = 0; r <= options_.repetitions; ++r) {
      for (size_t g = 0; g < groups_.size(); ++g) {
        const double seconds = time(groups_[g]);
        if (r > 0) out[g].push_back(seconds);
      }
    }
    const MachineLimits after = measure_limits();
    limits_.read_gbps = std::max(limits_.read_gbps, after.read_gbps);
    limits_.multiply_gflops = std::max(limits_.multiply_gflops, after.multiply_gflops);
    return out;
  }

  BenchRow row_for(const std::vector<int>& arms, const std::string& test, int64_t tokens,
                   int64_t depth, const std::vector<double>& seconds) const {
    BenchRow row;
    row.test = test;
    row.arms = std::ssize(arms);
    row.cache = arms.size() > 1 ? fmt::format("{} arms", arms.size())
                                : options_.caches[static_cast<size_t>(arms[0])].arm.text();
    row.tokens = tokens;
    row.depth = depth;
    row.limits = limits_;
    row.ms_per_token = 1e3 * median(seconds) / static_cast<double>(tokens);
    row.tokens_per_s = 1e3 * static_cast<double>(row.arms) / row.ms_per_token;
    std::vector<double> rates;
    for (const double s : seconds) rates.push_back(static_cast<double>(row.arms * tokens) / s);
    row.tokens_per_s_deviation = deviation(rates);
    return row;
  }

  BenchRow decode_row(size_t group, int64_t depth, const std::vector<double>& seconds) const {
    const ModelSpec& s = model_.spec();
    BenchRow row = row_for(groups_[group], fmt::format("tg{} @ d{}", options_.tokens, depth),
                           options_.tokens, depth, seconds);
    const int64_t keys = depth + (options_.tokens + 1) / 2;
    row.flops_per_token =
        row.arms * (2 * linear_parameters(s) + 2 * int64_t{s.vocab_size} * s.hidden_size +
                    attention_flops(s, keys));
    row.bytes_per_token = model_.weight_bytes();
    for (const int arm : groups_[group]) {
      const CacheBytes cache =
          cache_bytes(model_.geometry(),
                      options_.caches[static_cast<size_t>(arm)].arm.formats(s.num_layers), keys);
      row.bytes_per_token += cache.code_bytes + cache.scale_bytes;
    }
    row.limit = row.arms > 1 ? "memory read + multiply" : "memory read";
    set_share(row, static_cast<double>(row.bytes_per_token),
              row.arms > 1 ? static_cast<double>(row.flops_per_token) : 0);
    return row;
  }

  static void set_share(BenchRow& row, double bytes, double flops) {
    const double ms =
        bytes / (row.limits.read_gbps * 1e6) + flops / (row.limits.multiply_gflops * 1e6);
    row.share_of_limit = ms / row.ms_per_token;
  }

  const Model& model_;
  const BenchOptions& options_;
  MachineLimits limits_;
  Engine engine_;
  std::vector<std::vector<int>> groups_;  // arms of a row
};

}  // namespace

BenchResult run_bench(const std::shared_ptr<const Model>& model, const BenchOptions& options,
                      Progress& progress) {
  BenchResult out;
  out.weight_bytes = model->weight_bytes();
  Bench bench(model, options);
  out.first_token_s = bench.first_token_s();
  out.is_valid = true;
  for (const BenchOptions::Cache& cache : options.caches) {
    out.gate_kld.push_back(gate_kld(model, cache, options.plan));
    out.is_valid = out.is_valid && std::isfinite(out.gate_kld.back()) &&
                   out.gate_kld.back() < thresholds::kGateKld;
  }
  out.matmul_gflops = matmul_gflops(*model, 5);
  const int64_t total = std::ssize(options.prefill) + std::ssize(options.depths);
  int64_t done = 0;
  const auto test = [&](const std::function<void()>& run) {
    progress.update("bench", done++, total, "lengths");
    progress.check();
    run();
    out.limits.read_gbps = std::max(out.limits.read_gbps, bench.limits().read_gbps);
    out.limits.multiply_gflops =
        std::max(out.limits.multiply_gflops, bench.limits().multiply_gflops);
  };
  for (const int64_t n : options.prefill) test([&] { bench.prefill(n, out.rows); });
  for (const int64_t depth : options.depths) test([&] { bench.decode(depth, out.rows); });
  progress.update("bench", total, total, "lengths");
  for (int arm = 0; arm < bench.engine().num_arms(); ++arm)
    out.facts.push_back(bench.engine().facts(arm));
  out.matmul_kernel = *out.facts.front().kernels.matmul.begin();
  return out;
}

}  // namespace kv
