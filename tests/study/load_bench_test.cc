// Servers under load by turns, against servers that only stream.

#include "study/load_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "kvscale/error.h"
#include "tests/checkpoint/writers.h"
#include "tests/endpoint/fake_server.h"

namespace kv {
namespace {

using testing::FakeAnswer;
using testing::FakeRequest;
using testing::FakeServer;
using testing::ok;
using testing::refused;
using Json = nlohmann::json;

/// Holds `most` sequences at once: of more, those beyond are thrown out once each.
class LoadServer {
 public:
  explicit LoadServer(int most = 1000, int hold_ms = 3)
      : most_(most),
        hold_ms_(hold_ms),
        server_([this](const FakeRequest& request) { return answer(request); }) {}

  std::string url() const { return server_.url(); }
  std::vector<std::vector<int32_t>> prompts() {
    const std::lock_guard lock(mutex_);
    return prompts_;
  }
  void break_after(int answers) { left_ = answers; }

 private:
  FakeAnswer answer(const FakeRequest& request) {
    if (request.route == "/v1/models") return ok(R"({"data":[{"id":"m"}]})");
    if (request.route == "/metrics") return ok(metrics());
    if (request.route != "/v1/completions") return refused(404, "");
    const Json asked = Json::parse(request.body);
    {
      const std::lock_guard lock(mutex_);
      prompts_.push_back(asked.at("prompt").get<std::vector<int32_t>>());
      if (--left_ < 0) return {"", true, ""};  // dropped
      ++waiting_;
    }
    // All that are sent at a time are there together, if only a moment.
    std::this_thread::sleep_for(std::chrono::milliseconds(hold_ms_));
    FakeAnswer out{"HTTP/1.1 200 OK\r\n\r\n", true, ""};
    {
      const std::lock_guard lock(mutex_);
      peak_ = std::max(peak_, std::min(waiting_, most_));
      thrown_ += waiting_ > most_;
      --waiting_;
    }
    const auto tokens = asked.at("max_tokens").get<int64_t>();
    for (int64_t i = 0; i < tokens; ++i) {
      out.bytes += "data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[7]}]}\n\n";
    }
    out.bytes += "data: [DONE]\n\n";
    return out;
  }

  /// Of all requests since the last look.
  std::string metrics() {
    const std::lock_guard lock(mutex_);
    const int peak = std::exchange(peak_, 0);
    return "vllm:num_requests_running " + std::to_string(peak) + "\nvllm:num_preemptions_total " +
           std::to_string(thrown_) + "\n";
  }

  int most_, hold_ms_, waiting_ = 0, peak_ = 0, thrown_ = 0, left_ = 1 << 30;
  std::mutex mutex_;
  std::vector<std::vector<int32_t>> prompts_;
  FakeServer server_;
};

struct Bench {
  Bench(LoadServer& control, LoadServer& candidate) : arms(arms_of(control, candidate)) {
    options.shapes = {parse_load_shape("6x3"), parse_load_shape("9x2")};
    options.requests = 4;
    options.runs = 3;
    options.concurrency = 2;
  }

  static UrlArms arms_of(const LoadServer& control, const LoadServer& candidate) {
    HttpOptions http;
    http.attempts = 1;
    return {{{ArmSpec{}, control.url()}, {ArmSpec::parse("fp8_scale1"), candidate.url()}},
            http,
            Dialect::kVllm,
            ""};
  }

  /// Runs it, and says what the log has then.
  std::vector<TimingRecord> run() {
    RecordLog log(scratch.path() / "timing.jsonl");
    std::vector<int32_t> tokens(200);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
    LoadBench bench(arms, tokens, options, scratch.path(), log, silent);
    bench.run();
    measured = bench.runs().size();
    capacities = bench.capacities();
    return log.timings();
  }

  UrlArms arms;
  LoadBenchOptions options;
  fixtures::ScratchFolder scratch;
  NoProgress silent;
  size_t measured = 0;
  std::vector<LoadCapacity> capacities;
};

TEST(LoadBenchTest, ArmsAnswerTheSamePromptsThereAndBackAndNoServerSeesOneTwice) {
  LoadServer control, candidate;
  Bench bench(control, candidate);
  const auto records = bench.run();
  ASSERT_EQ(records.size(), 3u * 2 * 3);  // arms with the repeat, shapes, runs
  std::vector<std::string> order;
  for (const TimingRecord& one : records) {
    if (order.empty() || order.back() != one.arm) order.push_back(one.arm);
    EXPECT_TRUE(one.bucket == "6" || one.bucket == "9");
    EXPECT_EQ(std::to_string(one.context_tokens), one.bucket);
    EXPECT_GT(one.ttft_ms, 2.9);
    EXPECT_GT(one.output_throughput, 0);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"bf16", "fp8_scale1", "bf16#2", "fp8_scale1", "bf16",
                                             "fp8_scale1", "bf16#2"}));
  // Warm-up: two requests of each shape; the control's runs are twice the candidate's.
  auto asked = control.prompts(), of_candidate = candidate.prompts();
  EXPECT_EQ(of_candidate.size(), 2u * 2 + 2 * 3 * 4);
  EXPECT_EQ(asked.size(), 2u * 2 + 2 * 2 * 3 * 4);
  const std::set<std::vector<int32_t>> control_set(asked.begin(), asked.end());
  const std::set<std::vector<int32_t>> candidate_set(of_candidate.begin(), of_candidate.end());
  EXPECT_EQ(candidate_set.size(), of_candidate.size());
  EXPECT_EQ(control_set.size(), asked.size());  // the repeat asks with prompts of its own
  EXPECT_TRUE(std::ranges::includes(control_set, candidate_set));
  const Json details =
      Json::parse(std::ifstream(bench.scratch.path() / "load" / "bf16_2_6_0.json"));
  EXPECT_EQ(details.at("arm"), "bf16#2");
  EXPECT_EQ(details.at("ttfts").size(), 4u);
  EXPECT_TRUE(details.contains("preemptions"));
}

TEST(LoadBenchTest, GoesOnWhereAServerDropped) {
  LoadServer control, candidate;
  Bench bench(control, candidate);
  candidate.break_after(2 * 2 + 4 + 1);  // in its second run
  EXPECT_THROW(bench.run(), IoError);
  candidate.break_after(1 << 30);
  EXPECT_EQ(bench.run().size(), 18u);
  EXPECT_EQ(bench.measured, 18u - 3);  // two of the control and one of the candidate were there
  bench.run();
  EXPECT_EQ(bench.measured, 0u);
}

TEST(LoadBenchTest, CapacityIsWhatRunsAtOnceWithoutPreemption) {
  LoadServer control(5, 40), candidate(11, 40);
  Bench bench(control, candidate);
  bench.options.runs = 1;
  bench.options.requests = 1;
  bench.options.capacity_limit = 32;
  bench.run();
  ASSERT_EQ(bench.capacities.size(), 2u);
  EXPECT_EQ(bench.capacities[0].arm, "bf16");
  EXPECT_LE(bench.capacities[0].sequences, 5);
  EXPECT_GE(bench.capacities[0].sequences, 4);
  EXPECT_LE(bench.capacities[1].sequences, 11);
  EXPECT_GE(bench.capacities[1].sequences, 8);
  EXPECT_EQ(bench.capacities[1].tokens, bench.capacities[1].sequences * 9);
  EXPECT_GT(bench.capacities[0].refused_sequences, bench.capacities[0].sequences);
}

TEST(LoadBenchTest, AMixedLoadHasAllShapes) {
  LoadServer control, candidate;
  Bench bench(control, candidate);
  bench.options.runs = 1;
  bench.options.is_mixed = true;
  const auto records = bench.run();
  EXPECT_EQ(records.size(), 9u);
  EXPECT_EQ(std::ranges::count(records, "mixed", &TimingRecord::bucket), 3);
}

TEST(LoadBenchTest, ShapesThatAreNone) {
  for (const char* text : {"", "512", "512x", "x64", "0x4", "8x1", "8x4x2", "-8x4"}) {
    EXPECT_THROW(parse_load_shape(text), ValueError) << text;
  }
  LoadServer server;
  Bench bench(server, server);
  bench.options.shapes.push_back(parse_load_shape("6x9"));
  EXPECT_THROW(bench.run(), ValueError);
}

}  // namespace
}  // namespace kv
