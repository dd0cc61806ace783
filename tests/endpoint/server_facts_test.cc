#include "endpoint/server_facts.h"

#include <gtest/gtest.h>

#include "tests/endpoint/fake_server.h"

namespace kv {
namespace {

using testing::FakeRequest;
using testing::FakeServer;
using testing::ok;
using testing::quick;
using testing::refused;

const char* const kMetrics =
    "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
    "# TYPE vllm:cache_config_info gauge\n"
    "vllm:cache_config_info{block_size=\"128\",cache_dtype=\"fp8\",engine=\"0\",kv_cache_layout="
    "\"None\","
    "kv_cache_memory_bytes=\"2147483648\",kv_cache_size_tokens=\"186368\","
    "kv_cache_dtype_skip_layers=\"['0', '11']\"} 1.0\n";

TEST(ServerFacts, Vllm) {
  FakeServer server([](const FakeRequest& request) {
    if (request.route == "/version") return ok(R"({"version":"0.32.0"})");
    if (request.route == "/metrics") return ok(kMetrics);
    if (request.route == "/v1/models") return ok(R"({"data":[{"id":"m","max_model_len":4096}]})");
    return refused(404, "");
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm, "m");
  const ServerFacts facts = read_server_facts(client);
  EXPECT_EQ(facts.version, "0.32.0");
  EXPECT_EQ(facts.cache_dtype, "fp8");
  EXPECT_EQ(facts.cache_layout, "");
  EXPECT_EQ(facts.block_size, 128);
  EXPECT_EQ(facts.max_model_len, 4096);
  EXPECT_EQ(facts.skip_layers, (std::vector<std::string>{"0", "11"}));
  EXPECT_NEAR(facts.bytes_per_token(), 11522.8, 0.1);
  EXPECT_EQ(facts.text(),
            "vllm 0.32.0, cache dtype fp8, without layers 0 11, block size 128, 186,368 tokens fit "
            "into 2,147,483,648 bytes");
}

TEST(ServerFacts, RoutesThatAreNotThereLeaveNothing) {
  FakeServer server([](const FakeRequest&) { return refused(404, "not found"); });
  for (const Dialect dialect : {Dialect::kVllm, Dialect::kSglang, Dialect::kOpenAi}) {
    CompletionClient client(quick(server.url(), 1), dialect, "m");
    const ServerFacts facts = read_server_facts(client);
    EXPECT_EQ(facts.bytes_per_token(), 0);
    EXPECT_EQ(facts.text(), name(dialect));
  }
}

TEST(ServerFacts, Sglang) {
  FakeServer server([](const FakeRequest&) {
    return ok(R"({"version":"0.5.23","dtype":"bfloat16","kv_cache_dtype":"fp8_e4m3",
                  "attention_backend":"fa3","page_size":1,"max_total_num_tokens":5000,"tp_size":1})");
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kSglang, "m");
  const ServerFacts facts = read_server_facts(client);
  EXPECT_EQ(facts.text(),
            "sglang 0.5.23, fa3, cache dtype fp8_e4m3, block size 1, 5,000 tokens fit");
}

// What llama-server (xllamacpp 2026.10.11549, -lv 4, -ctk q8_0 -ctv q8_0) said of SmolLM2-135M.
TEST(ServerFacts, LlamaServer) {
  FakeServer server([](const FakeRequest& request) {
    if (request.route != "/props") return refused(404, "");
    return ok(R"({"default_generation_settings":{"params":{},"n_ctx":2048},"total_slots":1,
        "model_alias":"smollm2-135m.gguf","build_info":"b0-unknown"})");
  });
  CompletionClient client(quick(server.url()), Dialect::kLlamaServer);
  ServerFacts facts = read_server_facts(client);
  EXPECT_EQ(facts.max_model_len, 2048);
  EXPECT_EQ(facts.version, "b0-unknown");
  add_log_facts(
      "0.03.069.855 I llama_context: flash_attn            = enabled\n"
      "0.03.070.480 I llama_kv_cache:        CPU KV buffer size =    23.91 MiB\n"
      "0.03.197.454 I llama_kv_cache: size =   23.91 MiB (  2048 cells,  30 layers,  1/1 seqs), "
      "K (q8_0):   11.95 MiB, V (q8_0):   11.95 MiB\n"
      "0.03.197.517 I llama_kv_cache: n_rot_k = 64, n_embd_head_k_all = 64\n"
      "0.03.197.519 I llama_kv_cache: n_rot_v = 64, n_embd_head_k_all = 64\n",
      facts);
  EXPECT_EQ(facts.cache_dtype, "q8_0");
  EXPECT_EQ(facts.cache_tokens, 2048);
  EXPECT_EQ(facts.cache_bytes, 25'071'452);  // two digits of MiB
  // 30 layers of 3 heads of 64: 2 x 34 bytes for each 32 values, 12,240 a token.
  EXPECT_NEAR(facts.bytes_per_token(), 12'240, 12'240 * 0.001);
  EXPECT_EQ(facts.cache_layout, "k rotated in groups of 64, v rotated in groups of 64");
}

TEST(ServerFacts, ReplicasBehindOneAddressAreToldApart) {
  std::atomic<int> asked{0};
  const auto metrics = [&](const FakeRequest&) {
    const bool is_first = asked++ % 3 != 2;
    return ok(std::string("# HELP x\nvllm:cache_config_info{block_size=\"128\",cache_dtype=\"") +
              (is_first ? "auto" : "fp8") + "\"} 1.0\n# TYPE\nprocess_start_time_seconds " +
              (is_first ? "1.79608501433e+09" : "1.79608502112e+09") + "\n");
  };
  FakeServer server(metrics);
  CompletionClient client(quick(server.url()), Dialect::kVllm, "m");
  const auto replicas = read_replicas(client, 8);
  EXPECT_EQ(server.connections(), 8);  // a kept one would lead to the same replica
  ASSERT_EQ(replicas.size(), 2u);
  EXPECT_EQ(replicas[0].process, "1.79608501433e+09");
  EXPECT_EQ(replicas[0].cache_dtype, "auto");
  EXPECT_EQ(replicas[1].cache_dtype, "fp8");
  FakeServer silent([](const FakeRequest&) { return ok("vllm:x 1\n"); });
  CompletionClient other(quick(silent.url()), Dialect::kVllm, "m");
  EXPECT_TRUE(read_replicas(other, 8).empty());
}

TEST(ServerFacts, WrongTypesAreNamed) {
  FakeServer server([](const FakeRequest&) { return ok(R"({"version":["0.32.0"]})"); });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm, "m");
  try {
    read_server_facts(client);
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_EQ(std::string(error.what()).find("GET " + server.url() + "/version.version: expected"),
              0u)
        << error.what();
  }
}

std::string golden(const char* file) {
  std::ifstream in(std::filesystem::path(KV_SOURCE_DIR) / "tests/golden/endpoint" / file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(ServerFacts, RecordedVllm) {
  FakeServer server([](const FakeRequest& request) {
    if (request.route == "/metrics") return ok(golden("vllm_fp8_metrics.txt"));
    if (request.route == "/v1/models") return ok(golden("vllm_models.json"));
    return refused(404, "");
  });
  CompletionClient client(quick(server.url(), 1), Dialect::kVllm);
  ServerFacts facts = read_server_facts(client);
  add_log_facts(golden("vllm_fp8_log.txt"), facts);
  EXPECT_EQ(facts.model, "SmolLM2-135M-Instruct");
  EXPECT_EQ(facts.max_model_len, 4096);
  // 1 GiB in whole blocks of 128 tokens of 30 layers x 3 heads x 64 x 2 bytes.
  EXPECT_EQ(facts.cache_bytes, int64_t{1} << 30);
  EXPECT_EQ(facts.cache_tokens, (int64_t{1} << 30) / (128 * 11520) * 128);
  EXPECT_EQ(facts.model_dtype, "torch.bfloat16");
  EXPECT_EQ(facts.device, "CPU");
  EXPECT_EQ(facts.cache_layout, "LBHNC");
  EXPECT_TRUE(facts.skip_layers.empty());
  ASSERT_EQ(facts.warnings.size(), 1u);
  EXPECT_TRUE(facts.warnings[0].starts_with("Using fp8 data type to store kv cache."));
}

TEST(ServerFacts, Log) {
  const std::string log =
      "(EngineCore pid=7) INFO 11-29 10:00:00 [core.py:94] Initializing a V1 LLM engine (v0.32.0) "
      "with "
      "config: model='x', dtype=torch.bfloat16, max_seq_len=4096, kv_cache_dtype=fp8, device=cpu\n"
      "(EngineCore pid=7) INFO 11-29 10:00:01 [kv.py:1] Using LBHNC KV cache layout.\n"
      "(EngineCore pid=7) INFO 11-29 10:00:01 [kv.py:2] CPU KV cache size: 186,368 tokens, Maximum "
      "concurrency for 4,096 tokens per request: 45.50x\n"
      "(EngineCore pid=7) WARNING 11-29 10:00:01 [kv.py:3] Using KV cache scaling factor 1.0 for "
      "fp8_e4m3. If this is unintended, verify\n"
      "(EngineCore pid=7) WARNING 11-29 10:00:01 [kv.py:3] Using KV cache scaling factor 1.0 for "
      "fp8_e4m3. If this is unintended, verify\n"
      "INFO 11-29 10:00:01 [cuda.py:3] Using FLASH_ATTN attention backend out of potential "
      "backends: "
      "['FLASH_ATTN'].\n"
      "INFO 11-29 10:00:02 [fa.py:3] Using FlashAttention version 3\n";
  ServerFacts facts;
  add_log_facts(log, facts);
  EXPECT_EQ(facts.version, "0.32.0");
  EXPECT_EQ(facts.model_dtype, "torch.bfloat16");
  EXPECT_EQ(facts.cache_layout, "LBHNC");
  EXPECT_EQ(facts.device, "CPU");
  EXPECT_EQ(facts.cache_tokens, 186368);
  EXPECT_EQ(facts.backend, "FLASH_ATTN (FlashAttention 3)");
  EXPECT_TRUE(facts.says_scale_one);
  ASSERT_EQ(facts.warnings.size(), 1u);
  EXPECT_TRUE(facts.warnings[0].starts_with("Using KV cache scaling factor 1.0"))
      << facts.warnings[0];
}

TEST(ServerFacts, LabelsOfAMetric) {
  const auto read = [](const std::string& text) { return metric_labels(text, "a:b", "GET x"); };
  EXPECT_EQ(read("a:b{x=\"1\",y=\"q\\\"\\\\\\n}\"} 1"),
            (std::map<std::string, std::string>{{"x", "1"}, {"y", "q\"\\\n}"}}));
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("a:b 1").empty());
  EXPECT_TRUE(read("za:b{x=\"1\"} 1\na:bc{x=\"1\"} 1").empty());
  EXPECT_THROW(read("a:b{x=\"1"), FormatError);
  EXPECT_THROW(read("a:b{x=\"1\",y"), FormatError);
  EXPECT_THROW(read("a:b{x=\"1\ny=\"\"}"), FormatError);
}

TEST(ServerFacts, MutatedMetricsAndLogsEnd) {
  std::mt19937 random(7);
  const std::string metrics = kMetrics;
  for (int i = 0; i < 3000; ++i) {
    std::string text = metrics;
    for (int change = 0; change < 3; ++change)
      text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % (text.size() + 1));
    try {
      metric_labels(text, "vllm:cache_config_info", "GET x");
    } catch (const FormatError&) {
    }
    ServerFacts facts;
    add_log_facts(text, facts);
    EXPECT_GE(facts.cache_tokens, 0);
  }
}

}  // namespace
}  // namespace kv
