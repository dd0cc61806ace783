#include "study/load_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "decide/evidence.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "tensor/atomic_file.h"

namespace kv {
namespace {

constexpr const char* kMixed = "mixed";

ArmSpec spec_of(const std::string& arm) {
  return arm == kControlRepeat ? ArmSpec{} : ArmSpec::parse(arm);
}

std::string record_id_of(const std::string& arm, const std::string& label, int64_t run) {
  return fmt::format("timing/{}/{}/{}", arm, label, run);
}

std::string file_word(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '/' || c == '=' || c == ',' || c == '#'; }, '_');
  return text;
}

void add_peaks(nlohmann::ordered_json& out, const ServerLoad& peaks) {
  const auto add = [&](const char* key, double value) {
    if (value >= 0) out[key] = value;
  };
  add("peak_concurrency", peaks.running);
  add("peak_waiting", peaks.waiting);
  add("peak_cache_usage", peaks.cache_usage);
  add("preemptions", peaks.preemptions);
}

}  // namespace

LoadShape parse_load_shape(const std::string& text) {
  LoadShape out;
  const char *begin = text.data(), *end = begin + text.size();
  const auto input = std::from_chars(begin, end, out.input);
  const bool has_both = input.ec == std::errc{} && input.ptr != end && *input.ptr == 'x';
  const auto output = has_both ? std::from_chars(input.ptr + 1, end, out.output) : input;
  if (!has_both || output.ec != std::errc{} || output.ptr != end || out.input < 1 ||
      out.output < 2) {
    throw ValueError(fmt::format(
        "shape: expected INPUTxOUTPUT, as 512x64, of at least 1x2 tokens, found \"{}\"", text));
  }
  out.label = fmt::format("{}", out.input);
  return out;
}

LoadBench::LoadBench(ServedArms& arms, std::vector<int32_t> tokens, LoadBenchOptions options,
                     std::filesystem::path folder, RecordLog& log, Progress& progress)
    : arms_(arms),
      tokens_(std::move(tokens)),
      options_(std::move(options)),
      folder_(std::move(folder)),
      log_(log),
      progress_(progress) {
  std::vector<std::string> known = labels();
  std::ranges::sort(known);
  const auto twice = std::ranges::adjacent_find(known);
  if (twice != known.end()) {
    throw ValueError(
        fmt::format("load: expected each length of a prompt once, found {} twice", *twice));
  }
  if (tokens_.empty() || options_.shapes.empty() || options_.requests < 1 || options_.runs < 1) {
    throw ValueError("load: expected tokens, shapes, requests and runs, found none of one");
  }
}

std::vector<std::string> LoadBench::arms() const {
  std::vector<std::string> out = {std::string(kControlArm)};
  for (const ArmSpec& one : arms_.candidates()) out.push_back(served_key(one));
  out.emplace_back(kControlRepeat);
  return out;
}

std::vector<std::string> LoadBench::labels() const {
  std::vector<std::string> out;
  for (const LoadShape& shape : options_.shapes) out.push_back(shape.label);
  if (options_.is_mixed) out.emplace_back(kMixed);
  return out;
}

/// There and back, so that a machine that grows slower does so for all arms. Servers that take
/// turns run half of an arm's runs at a time.
std::vector<LoadBench::Turn> LoadBench::turns() const {
  const std::vector<std::string> there = arms();
  const std::vector<std::string> back(there.rbegin(), there.rend());
  std::vector<Turn> out;
  if (!arms_.is_exclusive()) {
    for (int64_t run = 0; run < options_.runs; ++run) {
      for (const std::string& arm : run % 2 == 0 ? there : back) out.push_back({arm, run});
    }
    return out;
  }
  const int64_t half = (options_.runs + 1) / 2;
  for (const std::string& arm : there) {
    for (int64_t run = 0; run < half; ++run) out.push_back({arm, run});
  }
  for (const std::string& arm : back) {
    for (int64_t run = half; run < options_.runs; ++run) out.push_back({arm, run});
  }
  return out;
}

/// The same for every arm but the control's repeat, whose server may have seen the control's: no
/// prompt reaches a server twice, so that no cache of prefixes has it.
std::vector<LoadRequest> LoadBench::requests(const std::string& arm, const std::string& label,
                                             int64_t run, int64_t count) const {
  std::vector<LoadRequest> out;
  const uint64_t prompts = fnv1a64(arm == kControlRepeat ? label + arm : label);
  SplitMix64 random(
      SplitMix64::replicate_seed(options_.seed ^ prompts, static_cast<uint64_t>(run)));
  for (int64_t i = 0; i < count; ++i) {
    const auto shape = label == kMixed
                           ? options_.shapes.begin() + i % std::ssize(options_.shapes)
                           : std::ranges::find(options_.shapes, label, &LoadShape::label);
    LoadRequest& one = out.emplace_back();
    one.output_tokens = shape->output;
    while (std::ssize(one.prompt) < shape->input) {
      one.prompt.push_back(tokens_[random.below(tokens_.size())]);
    }
  }
  return out;
}

LoadResult LoadBench::send(CompletionClient& client, const std::vector<LoadRequest>& requests,
                           const LoadPlan& plan) {
  return run_load(client, requests, plan, arms_.stop(), [&] { progress_.check(); });
}

void LoadBench::warm_up(CompletionClient& client, const std::string& arm,
                        const std::string& label) {
  bool& is_warm = warm_[served_key(spec_of(arm)) + "/" + label];
  if (is_warm || options_.warmups == 0) return;
  constexpr int64_t kNoRun = -1;  // prompts that no run has
  const LoadResult result =
      send(client, requests(arm, label, kNoRun, options_.warmups), {0, options_.warmups, 1});
  for (const LoadAnswer& one : result.answers) {
    if (!one.error.empty()) {
      throw IoError(fmt::format("load: {}: warm-up: {}", arm, one.error));
    }
  }
  is_warm = true;
}

void LoadBench::measure(const Turn& turn, const std::string& label) {
  const std::string id = record_id_of(turn.arm, label, turn.run);
  if (log_.has(id)) return;
  const auto server = arms_.open(spec_of(turn.arm), [&] { progress_.check(); });
  if (arms_.is_exclusive() && warm_server_.lock() != server) warm_.clear();
  warm_server_ = server;
  warm_up(server->client, turn.arm, label);
  LoadWatch watch(server->client);
  LoadPlan plan{options_.rate, options_.concurrency,
                options_.seed + static_cast<uint64_t>(turn.run)};
  const LoadResult result =
      send(server->client, requests(turn.arm, label, turn.run, options_.requests), plan);
  LoadRun& run = runs_.emplace_back(
      LoadRun{turn.arm, label, turn.run, summarize_load(result, options_.goodput), watch.peaks()});
  nlohmann::ordered_json json = load_json(result, run.summary, true);
  json["arm"] = turn.arm;
  json["shape"] = label;
  json["run"] = turn.run;
  json["request_rate"] = options_.rate;
  json["max_concurrency"] = options_.concurrency;
  add_peaks(json, run.peaks);
  std::filesystem::create_directories(folder_ / "load");
  write_file_atomically(
      folder_ / "load" / fmt::format("{}_{}_{}.json", file_word(turn.arm), label, turn.run),
      json.dump(1) + "\n");
  if (run.summary.failed > 0) {
    const auto failed = std::ranges::find_if(
        result.answers, [](const LoadAnswer& one) { return !one.error.empty(); });
    throw IoError(fmt::format("load: {}: {} of {} requests failed, the first with: {}", id,
                              run.summary.failed, result.answers.size(), failed->error));
  }
  TimingRecord record;
  record.record_id = id;
  record.arm = turn.arm;
  record.bucket = label;
  record.context_tokens = run.summary.input_tokens / run.summary.completed;
  record.run = turn.run;
  record.ttft_ms = run.summary.ttft_ms.median;
  record.itl_ms = run.summary.itl_ms.median;
  record.output_throughput = run.summary.output_throughput();
  log_.append(record);
}

/// Whether so many sequences run at once to their end and none is thrown out.
bool LoadBench::fits(CompletionClient& client, const LoadShape& shape, int64_t sequences,
                     double& thrown) {
  LoadWatch watch(client, std::chrono::milliseconds(25));  // no time is taken here
  const auto run = static_cast<int64_t>(1'000'000 + capacity_tries_++);
  const LoadResult result = send(
      client, requests(std::string(kControlArm), shape.label, run, sequences), {0, sequences, 1});
  const ServerLoad peaks = watch.peaks();
  if (peaks.running < 0 || peaks.preemptions < 0) {
    throw UnsupportedError(fmt::format(
        "{}: needed running requests and preemptions in /metrics for the capacity, found none",
        client.http().url()));
  }
  for (const LoadAnswer& one : result.answers) {
    if (!one.error.empty()) throw IoError("load: capacity: " + one.error);
  }
  thrown = peaks.preemptions;
  return peaks.preemptions == 0 && peaks.running >= static_cast<double>(sequences);
}

/// Doubled until it does not fit, then halved in between.
void LoadBench::measure_capacity(const std::string& arm) {
  const auto server = arms_.open(spec_of(arm), [&] { progress_.check(); });
  const LoadShape& shape = options_.shapes.front();
  LoadCapacity out;
  out.arm = arm;
  const auto tries = [&](int64_t sequences) {
    progress_.update("capacity: " + arm, sequences, options_.capacity_limit, "sequences");
    double thrown = 0;
    const bool fit = fits(server->client, shape, sequences, thrown);
    if (fit) {
      out.sequences = sequences;
    } else {
      out.refused_sequences = sequences;
      out.preemptions = thrown;
    }
    return fit;
  };
  int64_t most = 1;
  while (most <= options_.capacity_limit && tries(most)) most *= 2;
  while (out.refused_sequences > out.sequences + 1) {
    tries((out.sequences + out.refused_sequences) / 2);
  }
  out.tokens = out.sequences * (shape.input + shape.output);
  capacities_.push_back(out);
}

void LoadBench::run() {
  const std::vector<Turn> all = turns();
  int64_t done = 0;
  std::string last;
  for (const Turn& turn : all) {
    progress_.check();
    for (const std::string& label : labels()) {
      progress_.update(fmt::format("load: {}", turn.arm), done++,
                       std::ssize(all) * std::ssize(labels()), "runs");
      measure(turn, label);
    }
    // Once for each arm, while its server runs.
    const bool is_first = turn.run == 0 && turn.arm != kControlRepeat;
    if (options_.capacity_limit > 0 && is_first) measure_capacity(turn.arm);
  }
}

}  // namespace kv
