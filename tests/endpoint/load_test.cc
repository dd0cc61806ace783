// Loads against a server that misbehaves as told; times are checked from below only.

#include "endpoint/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "endpoint/load_summary.h"
#include "endpoint/server_load.h"
#include "tests/endpoint/fake_server.h"
#include "tests/endpoint/mutated.h"

namespace kv {
namespace {

using testing::FakeAnswer;
using testing::FakeRequest;
using testing::FakeServer;
using testing::message_of;
using testing::mutated;
using testing::ok;
using testing::quick;
using testing::refused;
using Json = nlohmann::json;

const std::string kHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }

/// As vLLM streams: a piece for each token, then the counts.
FakeAnswer vllm_stream(int64_t prompt, int64_t tokens, int piece_ms = 0) {
  FakeAnswer out{kHead, true, "", {}, piece_ms};
  for (int64_t i = 0; i < tokens; ++i) {
    out.pieces.push_back(
        event(R"({"choices":[{"text":"a","token_ids":[7],"finish_reason":null}]})"));
  }
  out.pieces.push_back(event(R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt) +
                             R"(,"completion_tokens":)" + std::to_string(tokens) + "}}") +
                       event("[DONE]"));
  return out;
}

FakeAnswer answer_to(const FakeRequest& request, int piece_ms = 0) {
  const Json asked = Json::parse(request.body);
  return vllm_stream(static_cast<int64_t>(asked.at("prompt").size()),
                     asked.at("max_tokens").get<int64_t>(), piece_ms);
}

std::vector<LoadRequest> requests_of(size_t n, int64_t output = 3) {
  return {n, LoadRequest{{1, 2, 3, 4}, output}};
}

LoadResult load(CompletionClient& client, const std::vector<LoadRequest>& requests,
                const LoadPlan& plan) {
  std::atomic<bool> stop{false};
  return run_load(client, requests, plan, stop, [] {});
}

/// Pieces that a stream was cut into, and the server's counts.
struct Streamed {
  std::vector<int64_t> pieces;
  StreamedCounts counts;
};

Streamed streamed(const std::string& text, Dialect dialect) {
  FakeServer server([&](const FakeRequest&) { return FakeAnswer{kHead + text, true, ""}; });
  CompletionClient client(quick(server.url(), 1), dialect, "m");
  const std::vector<int32_t> prompt = {5, 7};
  Streamed out;
  out.counts =
      client.stream({prompt, 3, {}, true}, [&](int64_t tokens) { out.pieces.push_back(tokens); });
  return out;
}

TEST(StreamedCompletion, EachDialectCountsItsTokens) {
  using Pieces = std::vector<int64_t>;
  const Streamed vllm =
      streamed(event(R"({"choices":[{"text":" 4","token_ids":[4,2],"prompt_token_ids":[5,7]}]})") +
                   event(R"({"choices":[{"text":"","token_ids":[2],"finish_reason":"length"}]})") +
                   event(R"({"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}})") +
                   event("[DONE]"),
               Dialect::kVllm);
  EXPECT_EQ(vllm.pieces, (Pieces{2, 1}));  // a token whose text is not there yet counts
  EXPECT_EQ(vllm.counts.input_tokens, 2);
  EXPECT_EQ(vllm.counts.output_tokens, 3);
  const Streamed openai = streamed(
      event(R"({"choices":[{"text":"ab"}]})") + event(R"({"choices":[{"text":""}],"usage":null})"),
      Dialect::kOpenAi);
  EXPECT_EQ(openai.pieces, Pieces{1});
  EXPECT_EQ(openai.counts.output_tokens, 0);
  const Streamed sglang =
      streamed(event(R"({"text":"a","meta_info":{"prompt_tokens":2,"completion_tokens":1}})") +
                   event(R"({"text":"abc","meta_info":{"prompt_tokens":2,"completion_tokens":3}})"),
               Dialect::kSglang);
  EXPECT_EQ(sglang.pieces, (Pieces{1, 2}));
  // As llama-server answered, cut.
  const Streamed llama = streamed(
      event(
          R"({"index":0,"content":" ","tokens":[216],"stop":false,"tokens_predicted":1,"tokens_evaluated":2})") +
          event(
              R"({"index":0,"content":"1","tokens":[33],"stop":false,"tokens_predicted":2,"tokens_evaluated":2})") +
          event(
              R"({"index":0,"content":"","tokens":[],"stop":true,"tokens_predicted":2,"tokens_evaluated":2})"),
      Dialect::kLlamaServer);
  EXPECT_EQ(llama.pieces, (Pieces{1, 1}));
  EXPECT_EQ(llama.counts.output_tokens, 2);
}

TEST(StreamedCompletion, HostileStreamsGiveOneClearError) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "expected an object"},
      {"{\"choices\":3}", ".choices: expected an array, found 3"},
      {R"({"choices":[{"token_ids":"NaN"}]})", "token_ids: expected an array"},
      {R"({"error":{"message":"out of memory"}})", "the server broke off"},
      {R"({"choices":[],"usage":{"prompt_tokens":-1}})", "prompt_tokens: expected a whole number"},
      {"{\"choices\":[", "/v1/completions"}};
  for (const auto& [text, expected] : cases) {
    const std::string message = message_of([&] { streamed(event(text), Dialect::kVllm); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << ": " << message;
  }
}

TEST(StreamedCompletion, MutatedStreamsAreTakenOrRefused) {
  const std::pair<Dialect, std::string> all[] = {
      {Dialect::kVllm, vllm_stream(2, 3).pieces[0] + vllm_stream(2, 3).pieces.back()},
      {Dialect::kOpenAi, event(R"({"choices":[{"text":"ab"}],"usage":null})") + event("[DONE]")},
      {Dialect::kSglang,
       event(R"({"text":"a","meta_info":{"prompt_tokens":2,"completion_tokens":1}})") +
           event(R"({"text":"ab","meta_info":{"prompt_tokens":2,"completion_tokens":2}})")},
      {Dialect::kLlamaServer,
       event(R"({"content":"1","tokens":[33],"tokens_predicted":1,"tokens_evaluated":2})") +
           event(R"({"content":"","tokens":[],"stop":true,"tokens_predicted":1})")}};
  std::mt19937 random(20261);
  const std::vector<int32_t> prompt = {5, 7};
  int taken = 0, refused_streams = 0;
  for (const auto& [dialect, stream] : all) {
    std::string body;
    FakeServer server([&](const FakeRequest&) { return FakeAnswer{kHead + body, true, ""}; });
    CompletionClient client(quick(server.url(), 1), dialect, "m");
    for (int i = 0; i < 400; ++i) {
      body = mutated(stream, random);
      int64_t tokens = 0;
      try {
        const auto arrived = [&](int64_t more) {
          EXPECT_GT(more, 0);
          tokens += more;
        };
        const StreamedCounts counts = client.stream({prompt, 3, {}, true}, arrived);
        ASSERT_GE(counts.input_tokens, 0);
        ASSERT_GE(counts.output_tokens, 0);
        ASSERT_LE(tokens, 1'000'000);
        ++taken;
      } catch (const Error& error) {  // of the library, and it says where
        ASSERT_NE(std::string(error.what()).find("http://127.0.0.1:"), std::string::npos) << body;
        ++refused_streams;
      }
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused_streams, 200);
}

TEST(Load, AClosedLoopKeepsItsConcurrencyAndItsOrder) {
  std::atomic<int> under_way{0}, most{0};
  FakeServer server([&](const FakeRequest& request) {
    int now = ++under_way;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    --under_way;
    return answer_to(request, 2);
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm, "m");
  const LoadResult result = load(client, requests_of(9), {0, 3, 1});
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 2);
  ASSERT_EQ(result.answers.size(), 9u);
  for (const LoadAnswer& one : result.answers) {
    EXPECT_EQ(one.error, "");
    EXPECT_EQ(one.input_tokens, 4);
    EXPECT_EQ(one.output_tokens, 3);
    ASSERT_EQ(one.itl_ms.size(), 2u);
    EXPECT_GE(one.ttft_ms, 5.9);
    for (const double gap : one.itl_ms) EXPECT_GT(gap, 0);
    EXPECT_NEAR(one.e2e_ms, one.ttft_ms + one.itl_ms[0] + one.itl_ms[1], 1e-6);
    EXPECT_LE(one.intended_ms + one.e2e_ms, result.duration_ms);
  }
}

// A server that takes 10 ms a request, asked for a hundred times as many: whoever waits is late by
// the whole queue, though the server answers each request in 10 ms.
TEST(Load, AnOpenLoopCountsFromTheIntendedMoment) {
  std::mutex one_at_a_time;
  FakeServer server([&](const FakeRequest& request) {
    const std::lock_guard lock(one_at_a_time);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return answer_to(request);
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm, "m");
  for (const int64_t workers : {1, 16}) {  // the queue here, or at the server
    const LoadResult result = load(client, requests_of(16), {10'000, workers, 7});
    const LoadAnswer& last = result.answers.back();
    EXPECT_GE(last.ttft_ms, workers == 1 ? 150 : 0);
    double longest = 0;
    for (const LoadAnswer& one : result.answers) longest = std::max(longest, one.ttft_ms);
    EXPECT_GE(longest, 140) << workers;
    EXPECT_EQ(summarize_load(result).completed, 16);
    EXPECT_GE(last.sent_late_ms, workers == 1 ? 130 : 0);
  }
}

TEST(Load, MomentsAreDrawnBeforehandAndHaveTheRate) {
  const auto moments = intended_moments(4000, {50, 1, 3});
  EXPECT_EQ(moments.front(), 0);
  EXPECT_TRUE(std::ranges::is_sorted(moments));
  // The mean of 3,999 exponential gaps of 20 ms: within 5 standard errors of 20 / sqrt(3999).
  EXPECT_NEAR(moments.back() / 3999, 20, 5 * 20 / std::sqrt(3999.0));
  EXPECT_EQ(moments, intended_moments(4000, {50, 1, 3}));
  EXPECT_NE(moments, intended_moments(4000, {50, 1, 4}));
  EXPECT_EQ(intended_moments(2, {}), (std::vector<double>{0, 0}));
}

TEST(Load, FailuresAreCountedAndNotAskedAgain) {
  std::atomic<int> count{0};
  FakeServer server([&](const FakeRequest& request) -> FakeAnswer {
    switch (count++ % 4) {
      case 0:
        return answer_to(request);
      case 1:
        return refused(503, "busy");
      case 2:
        return vllm_stream(4, 1);  // ends early
      default:
        return {"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + event(R"({"choices":[]})"), true,
                ""};  // dropped
    }
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm, "m");
  const LoadResult result = load(client, requests_of(4), {0, 1, 1});
  EXPECT_EQ(count, 4);
  EXPECT_EQ(result.answers[0].error, "");
  EXPECT_NE(result.answers[1].error.find("status 503"), std::string::npos);
  EXPECT_EQ(result.answers[2].error, "expected 3 tokens, found 1");
  EXPECT_FALSE(result.answers[3].error.empty());
  const LoadSummary summary = summarize_load(result);
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed, 3);
  EXPECT_EQ(summary.output_tokens, 3);
}

TEST(Load, AStopEndsIt) {
  FakeServer server([&](const FakeRequest& request) { return answer_to(request, 20); });
  std::atomic<bool> stop{false};
  HttpOptions http = quick(server.url(), 1);
  http.stop = &stop;
  CompletionClient client(http, Dialect::kVllm, "m");
  int checks = 0;
  EXPECT_THROW(run_load(client, requests_of(1000), {0, 2, 1}, stop,
                        [&] {
                          if (++checks > 3) throw ValueError("enough");
                        }),
               ValueError);
  EXPECT_LT(server.requests(), 20);
  stop = false;
  checks = 0;  // and when somebody else stops it
  EXPECT_THROW(run_load(client, requests_of(1000), {0, 2, 1}, stop, [&] { stop = ++checks > 3; }),
               IoError);
}

LoadAnswer answered(double ttft, std::vector<double> gaps) {
  LoadAnswer out;
  out.ttft_ms = out.e2e_ms = ttft;
  for (const double gap : gaps) out.e2e_ms += gap;
  out.itl_ms = std::move(gaps);
  out.input_tokens = 10;
  out.output_tokens = std::ssize(out.itl_ms) + 1;
  return out;
}

TEST(LoadSummary, NumbersByHandUnderTheKeysThatAreParsed) {
  LoadResult result;
  result.answers = {answered(100, {10, 30}), answered(300, {20}), {}};
  result.answers[2].error = "dropped";
  result.duration_ms = 2000;
  const LoadSummary s = summarize_load(result, Goodput::parse("ttft:200 tpot:25"));
  const Json json = load_json(result, s, true);
  const std::map<std::string, double> expected = {{"duration", 2},
                                                  {"completed", 2},
                                                  {"failed", 1},
                                                  {"total_input_tokens", 20},
                                                  {"total_output_tokens", 5},
                                                  {"request_throughput", 1},
                                                  {"request_goodput", 0.5},
                                                  {"output_throughput", 2.5},
                                                  {"total_token_throughput", 12.5},
                                                  {"mean_ttft_ms", 200},
                                                  {"median_ttft_ms", 200},
                                                  {"std_ttft_ms", 100},
                                                  {"p99_ttft_ms", 298},
                                                  {"mean_tpot_ms", 20},
                                                  {"median_tpot_ms", 20},
                                                  {"std_tpot_ms", 0},
                                                  {"p99_tpot_ms", 20},
                                                  {"mean_itl_ms", 20},
                                                  {"median_itl_ms", 20},
                                                  {"p99_itl_ms", 29.8},
                                                  {"mean_e2el_ms", 230},
                                                  {"p99_e2el_ms", 318.2}};
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_NEAR(json.at(key).get<double>(), value, 1e-9) << key;
  }
  EXPECT_NEAR(json.at("std_itl_ms").get<double>(), std::sqrt(200.0 / 3), 1e-9);
  EXPECT_EQ(json.at("itls")[0], Json({0.01, 0.03}));  // seconds there
  EXPECT_EQ(json.at("errors")[2], "dropped");
  EXPECT_FALSE(Json(load_json(result, s, false)).contains("ttfts"));
  EXPECT_FALSE(Json(load_json(result, summarize_load(result), false)).contains("request_goodput"));
  for (const char* wrong : {"ttft", "ttft:", "ttft:-1", "x:1", "ttft:1,tpot:2"}) {
    EXPECT_THROW(Goodput::parse(wrong), ValueError) << wrong;
  }
}

TEST(ServerLoad, MetricsAreAddedUpOverTheirSamples) {
  const std::string text =
      "# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine=\"0\"} 2.0\n"
      "vllm:num_requests_running{engine=\"1\",name=\"a b\"} 3.0\nvllm:num_requests_running_max 9\n"
      "plain 1e3\nbroken{x=\"1\"} many\n";
  EXPECT_EQ(metric_value(text, "vllm:num_requests_running"), 5);
  EXPECT_EQ(metric_value(text, "plain"), 1000);
  EXPECT_EQ(metric_value(text, "broken"), std::nullopt);
  EXPECT_EQ(metric_value(text, "vllm:num_requests"), std::nullopt);
}

TEST(ServerLoad, AWatchKeepsThePeaks) {
  std::atomic<int> running{0}, thrown{5};
  FakeServer server([&](const FakeRequest&) {
    return ok("vllm:num_requests_running " + std::to_string(running) +
              "\nvllm:num_preemptions_total " + std::to_string(thrown) + "\n");
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm, "m");
  LoadWatch watch(client);
  running = 4;
  thrown = 7;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  running = 1;
  const ServerLoad peaks = watch.peaks();
  EXPECT_EQ(peaks.running, 4);
  EXPECT_EQ(peaks.preemptions, 2);
  EXPECT_EQ(peaks.cache_usage, -1);
  FakeServer silent([](const FakeRequest&) { return refused(404, ""); });
  CompletionClient other(quick(silent.url(), 1), Dialect::kVllm, "m");
  EXPECT_EQ(LoadWatch(other).peaks().running, -1);
}

}  // namespace
}  // namespace kv
