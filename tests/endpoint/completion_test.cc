#include "endpoint/completion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/endpoint/fake_server.h"
#include "tests/endpoint/mutated.h"

namespace kv {
namespace {

using testing::FakeRequest;
using testing::FakeServer;
using testing::message_of;
using testing::mutated;
using testing::ok;
using testing::quick;
using testing::refused;
using Json = nlohmann::json;

// Answers in each dialect's form, as the servers give them, cut to what is read and a little more.
const char* const kVllmGenerated =
    R"({"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":" 42\n",
        "logprobs":null,"finish_reason":"stop","stop_reason":198,"token_ids":[216,36,198]}],
        "usage":{"prompt_tokens":3,"completion_tokens":3}})";
const char* const kVllmScored =
    R"({"id":"cmpl-2","choices":[{"index":0,"text":"x","finish_reason":"length","prompt_logprobs":
        [null,{"7":{"logprob":-0.5,"rank":1,"decoded_token":"a"}},
         {"9":{"logprob":-9999.0,"rank":3000,"decoded_token":"b"},
          "4":{"logprob":-0.1,"rank":1,"decoded_token":"c"}}]}]})";
const char* const kOpenAiScored =
    R"({"choices":[{"text":"abcx","finish_reason":"length","logprobs":{"tokens":["a","b","c","x"],
        "token_logprobs":[null,-0.5,-2.25,-1.0],"top_logprobs":[null,{},{},{}]}}]})";
const char* const kSglangGenerated =
    R"({"text":" 42","output_ids":[216,36,2],"meta_info":{"id":"a1","prompt_tokens":3,
        "finish_reason":{"type":"stop","matched":2}}})";
const char* const kSglangScored =
    R"({"text":"x","meta_info":{"finish_reason":{"type":"length","length":1},
        "input_token_logprobs":[[null,5,null],[-0.5,7,null],[-3.5,9,null]],
        "input_top_logprobs":[null,[[-0.5,7,null]],[[-0.1,4,null]]]}})";
const char* const kLlamaGenerated =
    R"({"index":0,"content":" 42\nand","tokens":[216,36,198,500],"stop_type":"limit","stop":true,
        "completion_probabilities":[{"id":216,"token":" ","logprob":-1.5},{"id":36,"logprob":-0.25},
        {"id":198,"logprob":-0.5},{"id":500,"logprob":-2}]})";

const std::vector<int32_t> kPrompt = {5, 7, 9};
const std::vector<int32_t> kStops = {2, 198};

/// A client of a server that gives one answer, and what it was asked.
struct OneAnswer {
  explicit OneAnswer(const std::string& body, Dialect dialect)
      : server([this, body](const FakeRequest& request) {
          route = request.route;
          asked = Json::parse(request.body);
          return ok(body);
        }),
        client(quick(server.url()), dialect, "m") {}
  std::string route;
  Json asked;
  FakeServer server;
  CompletionClient client;
};

TEST(Completion, Vllm) {
  OneAnswer one(kVllmGenerated, Dialect::kVllm);
  const Generated out = one.client.generate({kPrompt, 8, kStops, false});
  EXPECT_EQ(one.route, "/v1/completions");
  EXPECT_EQ(one.asked, Json::parse(R"({"model":"m","prompt":[5,7,9],"max_tokens":8,"temperature":0,
      "return_token_ids":true,"stop_token_ids":[2,198],"ignore_eos":false})"));
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{216, 36}));
  EXPECT_TRUE(out.has_tokens);
  EXPECT_TRUE(out.ended);
  EXPECT_EQ(out.text, " 42\n");
  EXPECT_EQ(out.reply_id, "cmpl-1");
}

TEST(Completion, VllmPromptLogprobs) {
  OneAnswer one(kVllmScored, Dialect::kVllm);
  const auto out = one.client.score(kPrompt);
  EXPECT_EQ(one.asked.at("prompt_logprobs"), 0);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].logprob, -0.5);
  EXPECT_EQ(out[0].is_top, true);
  EXPECT_TRUE(std::isinf(out[1].logprob));
  EXPECT_EQ(out[1].is_top, false);
}

TEST(Completion, OpenAi) {
  OneAnswer generated(kVllmGenerated, Dialect::kOpenAi);
  generated.client.generate({kPrompt, 8, kStops, true});
  EXPECT_FALSE(generated.asked.contains("stop_token_ids"));  // no field that not every server has
  EXPECT_FALSE(generated.asked.contains("ignore_eos"));
  OneAnswer one(kOpenAiScored, Dialect::kOpenAi);
  const auto out = one.client.score(kPrompt);
  EXPECT_EQ(one.asked.at("echo"), true);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].logprob, -2.25);
  EXPECT_FALSE(out[1].is_top.has_value());
}

TEST(Completion, Sglang) {
  OneAnswer one(kSglangGenerated, Dialect::kSglang);
  const Generated out = one.client.generate({kPrompt, 3, kStops, false});
  EXPECT_EQ(one.route, "/generate");
  EXPECT_EQ(one.asked.at("input_ids"), Json(kPrompt));
  EXPECT_EQ(one.asked.at("sampling_params").at("max_new_tokens"), 3);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{216, 36}));
  EXPECT_TRUE(out.ended);
  OneAnswer scored(kSglangScored, Dialect::kSglang);
  const auto tokens = scored.client.score(kPrompt);
  EXPECT_EQ(scored.asked.at("logprob_start_len"), 0);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].is_top, true);
  EXPECT_EQ(tokens[1].logprob, -3.5);
  EXPECT_EQ(tokens[1].is_top, false);
}

TEST(Completion, LlamaServer) {
  OneAnswer one(kLlamaGenerated, Dialect::kLlamaServer);
  const Generated out = one.client.generate({kPrompt, 4, kStops, false});
  EXPECT_EQ(one.route, "/completion");
  EXPECT_EQ(one.asked.at("return_tokens"), true);
  EXPECT_EQ(out.tokens, (std::vector<int32_t>{216, 36}));  // cut at the stop id
  EXPECT_EQ(out.logprobs, (std::vector<float>{-1.5F, -0.25F, -0.5F, -2}));
  EXPECT_TRUE(out.ended);
  EXPECT_THROW(one.client.score(kPrompt), UnsupportedError);
}

TEST(Completion, PrefixCachesAreLeftOutWhereThatCanBeSaid) {
  OneAnswer vllm(kVllmGenerated, Dialect::kVllm);
  vllm.client.forbid_prefix_cache();
  vllm.client.generate({kPrompt, 8, kStops, false});
  const std::string first = vllm.asked.at("cache_salt");
  vllm.client.generate({kPrompt, 8, kStops, false});
  EXPECT_NE(vllm.asked.at("cache_salt"), first);
  OneAnswer llama(kLlamaGenerated, Dialect::kLlamaServer);
  llama.client.forbid_prefix_cache();
  llama.client.generate({kPrompt, 4, kStops, false});
  EXPECT_EQ(llama.asked.at("cache_prompt"), false);
  OneAnswer other(kLlamaGenerated, Dialect::kSglang);
  EXPECT_NE(message_of([&] { other.client.forbid_prefix_cache(); }).find("start the server"),
            std::string::npos);
}

// What vLLM 0.32.0 (CPU build, --kv-cache-dtype fp8) answered to "The distance of France is".
std::string recorded(const char* file) {
  std::ifstream in(std::filesystem::path(KV_SOURCE_DIR) / "tests/golden/endpoint" / file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
const std::vector<int32_t> kRecordedPrompt = {504, 4052, 282, 4649, 314};

TEST(Completion, RecordedVllm) {
  OneAnswer generated(recorded("vllm_generated.json"), Dialect::kVllm);
  const Generated four = generated.client.generate({kRecordedPrompt, 4, {}, true});
  EXPECT_EQ(four.tokens, (std::vector<int32_t>{216, 33, 32, 32}));
  EXPECT_FALSE(four.ended);
  OneAnswer stopped(recorded("vllm_stopped.json"), Dialect::kVllm);
  const std::vector<int32_t> stops = {32};
  const Generated two = stopped.client.generate({kRecordedPrompt, 4, stops, false});
  EXPECT_EQ(two.tokens, (std::vector<int32_t>{216, 33}));
  EXPECT_TRUE(two.ended);
}

TEST(Completion, RecordedVllmSaysTheSameInBothForms) {
  OneAnswer own(recorded("vllm_scored.json"), Dialect::kVllm);
  OneAnswer echo(recorded("vllm_echo.json"), Dialect::kOpenAi);
  const auto a = own.client.score(kRecordedPrompt), b = echo.client.score(kRecordedPrompt);
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(b.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(a[i].logprob, b[i].logprob);
  EXPECT_NEAR(a[0].logprob, -14.0463, 1e-4);
  EXPECT_EQ(a[1].is_top, false);
}

TEST(Completion, AnAnswerAtItsLimitHasNotEnded) {
  OneAnswer one(R"({"choices":[{"text":"a","finish_reason":"length","token_ids":[4,5]}]})",
                Dialect::kVllm);
  const Generated out = one.client.generate({kPrompt, 2, kStops, false});
  EXPECT_FALSE(out.ended);
  EXPECT_EQ(out.tokens.size(), 2u);
}

TEST(Completion, TheModelIsAskedFor) {
  std::string models = R"({"object":"list","data":[{"id":"served","max_model_len":4096}]})";
  FakeServer server([&](const FakeRequest& request) {
    return request.route == "/v1/models" ? ok(models) : ok(kVllmGenerated);
  });
  EXPECT_EQ(CompletionClient(quick(server.url()), Dialect::kVllm).model(), "served");
  models = R"({"data":[{"id":"a"},{"id":"b"}]})";
  EXPECT_EQ(message_of([&] { CompletionClient(quick(server.url()), Dialect::kVllm); }),
            "GET " + server.url() + "/v1/models: expected one model, found 2: a, b");
}

TEST(Completion, ARefusalIsToldInTheServersWords) {
  FakeServer server([](const FakeRequest&) {
    return refused(400, R"({"error":{"message":"This model's maximum context length is 8"}})");
  });
  CompletionClient client(quick(server.url()), Dialect::kVllm, "m");
  EXPECT_EQ(
      message_of([&] { client.score(kPrompt); }),
      "POST " + server.url() +
          R"(/v1/completions: status 400: {"error":{"message":"This model's maximum context length is 8"}})");
}

TEST(Completion, HostileRepliesGiveOneClearError) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "/v1/completions"},
      {"[]", "expected an object"},
      {"{\"choices\":[]}", ".choices: expected more than 0 entries, found 0"},
      {R"({"choices":[{"prompt_logprobs":[null,{"7":{"logprob":"NaN"}},{}]}]})",
       "prompt_logprobs[1].7.logprob: expected a logprob, found \"NaN\""},
      {R"({"choices":[{"prompt_logprobs":[null,{"7":{"logprob":0.5}},{}]}]})",
       "expected a logprob of at most 0, found 0.5"},
      {R"({"choices":[{"prompt_logprobs":[null,{"7":{"logprob":NaN}},{}]}]})", "/v1/completions"},
      {R"({"choices":[{"prompt_logprobs":[null,{"8":{"logprob":-1}},{}]}]})",
       "prompt_logprobs[1]: expected a field \"7\", found none"},
      {R"({"choices":[{"prompt_logprobs":[null,{"7":{"logprob":-1}}]}]})",
       "expected 3 entries, one for each token of the prompt, found 2"},
      {R"({"choices":[{"prompt_logprobs":null}]})", "expected a field \"prompt_logprobs\""},
      {R"({"choices":[{"prompt_logprobs":[null,{"7":{"logprob":-1,"rank":"1"}},{}]}]})",
       "prompt_logprobs[1].7.rank: expected a whole number"},
      {R"({"choices":[{"prompt_logprobs":[null,{"7":{"logp)", "/v1/completions"}};
  for (const auto& [body, expected] : cases) {
    OneAnswer one(body, Dialect::kVllm);
    const std::string text = message_of([&] { one.client.score(kPrompt); });
    EXPECT_TRUE(text.starts_with("POST http://127.0.0.1:")) << body << ": " << text;
    EXPECT_NE(text.find(expected), std::string::npos) << body << ": " << text;
  }
  OneAnswer many(R"({"choices":[{"text":"","finish_reason":"length","token_ids":[1,2,3]}]})",
                 Dialect::kVllm);
  EXPECT_NE(message_of([&] {
              many.client.generate({kPrompt, 2, kStops, false});
            }).find("expected at most 2 tokens, found 3"),
            std::string::npos);
  OneAnswer negative(R"({"choices":[{"text":"","finish_reason":"length","token_ids":[1,-2]}]})",
                     Dialect::kVllm);
  EXPECT_NE(message_of([&] {
              negative.client.generate({kPrompt, 2, kStops, false});
            }).find("token_ids[1]: expected a whole number"),
            std::string::npos);
}

TEST(Completion, MutatedRepliesAreTakenOrRefused) {
  struct Recorded {
    const char* body;
    Dialect dialect;
    bool is_score;
  };
  const Recorded all[] = {
      {kVllmGenerated, Dialect::kVllm, false}, {kVllmScored, Dialect::kVllm, true},
      {kOpenAiScored, Dialect::kOpenAi, true}, {kSglangGenerated, Dialect::kSglang, false},
      {kSglangScored, Dialect::kSglang, true}, {kLlamaGenerated, Dialect::kLlamaServer, false}};
  std::mt19937 random(20260);
  int taken = 0, refused_replies = 0;
  for (const Recorded& recorded : all) {
    std::string body;
    FakeServer server([&](const FakeRequest&) { return ok(body); });
    CompletionClient client(quick(server.url()), recorded.dialect, "m");
    for (int i = 0; i < 700; ++i) {
      body = mutated(recorded.body, random);
      try {
        if (recorded.is_score) {
          const auto scored = client.score(kPrompt);
          ASSERT_EQ(scored.size(), 2u);
          for (const ScoredToken& one : scored) ASSERT_LE(one.logprob, 1e-3);
        } else {
          ASSERT_LE(client.generate({kPrompt, 8, kStops, false}).tokens.size(), 8u);
        }
        ++taken;
      } catch (const FormatError& error) {
        ASSERT_TRUE(std::string(error.what()).starts_with("POST http://127.0.0.1:"));
        ++refused_replies;
      }
    }
  }
  EXPECT_GT(taken, 300);
  EXPECT_GT(refused_replies, 1000);
}

TEST(Completion, Names) {
  for (const char* one : {"vllm", "openai", "sglang", "llama-server"}) {
    EXPECT_EQ(name(dialect_from_name(one)), one);
  }
  EXPECT_THROW(dialect_from_name("tgi"), ValueError);
}

}  // namespace
}  // namespace kv
