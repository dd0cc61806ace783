#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using fixtures::GgufWriter;
using fixtures::TinyModel;

class GgufModelTest : public testing::Test {
 protected:
  std::unique_ptr<Checkpoint> open(const GgufWriter& writer) {
    fixtures::write_file(folder_ / "tiny.gguf", writer.bytes());
    return Checkpoint::open(folder_ / "tiny.gguf");
  }
  std::string refusal(const GgufWriter& writer) {
    try {
      open(writer);
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  }

  const TinyModel llama_ = fixtures::make_tiny_model(fixtures::tiny_spec("llama"), 1);
  const TinyModel qwen2_ = fixtures::make_tiny_model(fixtures::tiny_spec("qwen2"), 1);
  fixtures::ScratchFolder folder_;
};

// What real files leave out: scale of the head, KV heads, rope dimensions, vocabulary size.
TEST_F(GgufModelTest, AbsentKeysHaveTheirDefaults) {
  ModelSpec spec = fixtures::tiny_spec("qwen2");
  spec.num_kv_heads = spec.num_q_heads;
  spec.head_dim = spec.hidden_size / spec.num_q_heads;
  GgufWriter writer = fixtures::gguf_model(fixtures::make_tiny_model(spec, 1));
  for (const char* key : {"qwen2.attention.key_length", "qwen2.attention.value_length",
                          "qwen2.attention.head_count_kv", "qwen2.rope.freq_base",
                          "qwen2.vocab_size", "general.name", "tokenizer.ggml.bos_token_id"}) {
    writer.erase(key);
  }
  writer.set_texts("tokenizer.ggml.tokens", std::vector<std::string>(40, "x"));
  const auto checkpoint = open(writer);
  EXPECT_EQ(checkpoint->spec().num_kv_heads, 4);
  EXPECT_EQ(checkpoint->spec().head_dim, 6);
  EXPECT_EQ(checkpoint->spec().vocab_size, 40);
  EXPECT_EQ(checkpoint->spec().rope.theta, 10000.0);
  EXPECT_EQ(checkpoint->spec().bos_id, std::nullopt);
  EXPECT_FALSE(checkpoint->spec().add_bos);
}

TEST_F(GgufModelTest, EndsAndBeginnings) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.set_u32("tokenizer.ggml.eot_token_id", 2);  // the same as eos
  writer.set_u32("tokenizer.ggml.eom_token_id", 7);
  writer.set_text("tokenizer.ggml.pre", "llama-bpe");
  writer.set_text("tokenizer.chat_template", "{{ messages }}");
  const auto checkpoint = open(writer);
  EXPECT_EQ(checkpoint->spec().eos_ids, (std::vector<int32_t>{2, 7}));
  EXPECT_TRUE(checkpoint->spec().add_bos);
  EXPECT_EQ(checkpoint->chat_template(), "{{ messages }}");
  writer.set_bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(open(writer)->spec().add_bos);
}

TEST_F(GgufModelTest, HeadCountsMayBeListsOfEqualNumbers) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.set_integers("llama.attention.head_count_kv", {2, 2});
  EXPECT_EQ(open(writer)->spec().num_kv_heads, 2);
  writer.set_integers("llama.attention.head_count_kv", {2, 1});
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: llama.attention.head_count_kv: expected one value for all layers, found a "
            "list of 2 that differ");
}

TEST_F(GgufModelTest, RopeFreqsDivide) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.tensors.push_back({"rope_freqs.weight", {4}, 0, fixtures::encoded({1, 1, 4, 8}, "F32")});
  const auto checkpoint = open(writer);
  EXPECT_EQ(checkpoint->spec().rope.freq_divisors, (std::vector<float>{1, 1, 4, 8}));
  const std::vector<std::string> unread = checkpoint->unread();
  EXPECT_EQ(std::find(unread.begin(), unread.end(), "rope_freqs.weight"), unread.end());
  EXPECT_NE(checkpoint->content_sha256(), open(fixtures::gguf_model(llama_))->content_sha256());
}

TEST_F(GgufModelTest, RopeFreqsMustFit) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.tensors.push_back({"rope_freqs.weight", {3}, 0, fixtures::encoded({1, 1, 4}, "F32")});
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: tensor \"rope_freqs.weight\": expected F32 of shape [4], found F32 of [3]");
  writer.tensors.back() = {"rope_freqs.weight", {4}, 0, fixtures::encoded({1, 1, 0, 8}, "F32")};
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: rope_freqs: expected a number above 0 and below 1e12, found 0");
}

TEST_F(GgufModelTest, RopeScalings) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.set_f32("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(open(writer)->spec().rope.type, RopeType::kLinear);
  writer.set_text("llama.rope.scaling.type", "none");
  EXPECT_EQ(open(writer)->spec().rope.type, RopeType::kDefault);
  writer.set_text("llama.rope.scaling.type", "yarn");
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: llama.rope.scaling.original_context_length: expected this key, found none");
  writer.set_u32("llama.rope.scaling.original_context_length", 64);
  EXPECT_EQ(open(writer)->spec().rope.type, RopeType::kYarn);
  EXPECT_NEAR(attention_factor(open(writer)->spec().rope), 0.1 * std::log(4.0) + 1.0, 1e-12);
  writer.set_text("llama.rope.scaling.type", "longrope");
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: llama.rope.scaling.type: expected none, linear or yarn, found "
            "\"longrope\"");
}

TEST_F(GgufModelTest, RefusesOtherArchitectures) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  const std::string known =
      "tiny.gguf: general.architecture: expected one of llama, qwen2, qwen3, qwen3moe, phi3, "
      "gemma2, gemma3, found ";
  writer.set_text("general.architecture", "deepseek2");
  EXPECT_EQ(refusal(writer), known + "\"deepseek2\"");
  writer.erase("general.architecture");
  EXPECT_EQ(refusal(writer), known + "\"\"");
}

TEST_F(GgufModelTest, RefusesPartsOfOtherModels) {
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.set_u32("llama.attention.sliding_window", 8);
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: llama.attention.sliding_window: expected 0 or no such key, found 8");
  writer = fixtures::gguf_model(llama_);
  writer.set_u32("llama.expert_count", 8);
  EXPECT_EQ(refusal(writer), "tiny.gguf: llama.expert_used_count: expected this key, found none");
  writer = fixtures::gguf_model(qwen2_);
  writer.set_u32("qwen2.expert_count", 8);
  EXPECT_EQ(refusal(writer), "tiny.gguf: qwen2.expert_count: 8 is not supported");
  writer = fixtures::gguf_model(llama_);
  writer.tensors.push_back({"blk.0.ffn_up.bias", {40}, 0, std::string(160, '\0')});
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: tensor \"blk.0.ffn_up.bias\": llama has no such bias here");
  writer = fixtures::gguf_model(llama_);
  writer.tensors.push_back({"rope_factors_long.weight", {4}, 0, std::string(16, '\0')});
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: tensor \"rope_factors_long.weight\": longrope is not supported");
  writer = fixtures::gguf_model(llama_);
  writer.set_f32("llama.final_logit_softcapping", 30.0f);
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: llama.final_logit_softcapping: expected 0 or no such key, found 30");
  writer = fixtures::gguf_model(llama_);
  writer.set_u32("llama.rope.dimension_count", 4);
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: llama.rope.dimension_count: expected 8 (the head's size), found 4");
}

TEST_F(GgufModelTest, EveryNumberIsBounded) {
  const auto with = [&](const char* key, uint32_t value) {
    GgufWriter writer = fixtures::gguf_model(llama_);
    writer.set_u32(key, value);
    return refusal(writer);
  };
  EXPECT_EQ(with("llama.block_count", 0),
            "tiny.gguf: llama.block_count: expected 1 to 1024, found 0");
  EXPECT_EQ(with("llama.block_count", 0xffffffff),
            "tiny.gguf: llama.block_count: expected 1 to 1024, found 4294967295");
  for (const char* key :
       {"llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.head_count_kv", "llama.attention.key_length", "llama.context_length",
        "llama.vocab_size"}) {
    for (const uint32_t value : {0u, 0xffffffffu, 0x7fffffffu}) {
      const std::string prefix = std::string("tiny.gguf: ") + key + ": expected ";
      EXPECT_EQ(with(key, value).find(prefix), 0u) << with(key, value);
    }
  }
  EXPECT_EQ(with("llama.attention.head_count_kv", 3),
            "tiny.gguf: num_q_heads: expected a multiple of num_kv_heads = 3, found 4");
  EXPECT_EQ(with("tokenizer.ggml.eos_token_id", 40),
            "tiny.gguf: eos token: expected a token id below vocab_size = 40, found 40");
  GgufWriter writer = fixtures::gguf_model(llama_);
  writer.set_f32("llama.attention.layer_norm_rms_epsilon", std::nanf(""));
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: rms_norm_eps: expected a number between 0 and 1, found nan");
  writer = fixtures::gguf_model(llama_);
  writer.set_f32("llama.rope.freq_base", 0.0f);
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: rope theta: expected a number above 0 and below 1e12, found 0");
}

TEST_F(GgufModelTest, RequiredKeysAreNamed) {
  for (const char* key :
       {"block_count", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.layer_norm_rms_epsilon", "context_length"}) {
    GgufWriter writer = fixtures::gguf_model(llama_);
    writer.erase(std::string("llama.") + key);
    EXPECT_EQ(refusal(writer),
              std::string("tiny.gguf: llama.") + key + ": expected this key, found none");
  }
}

TEST_F(GgufModelTest, MissingAndMisshapenTensorsAreNamed) {
  GgufWriter writer = fixtures::gguf_model(qwen2_);
  writer.erase_tensor("blk.1.attn_k.bias");
  EXPECT_EQ(refusal(writer), "tiny.gguf: tensor \"blk.1.attn_k.bias\" is missing");
  writer = fixtures::gguf_model(qwen2_);
  writer.tensor("blk.1.attn_k.weight").shape = {24, 16};
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: tensor \"blk.1.attn_k.weight\": expected shape [16, 24], found [24, 16]");
  writer = fixtures::gguf_model(qwen2_);
  writer.tensor("blk.1.attn_k.weight").type = 25;  // I16, as wide as F16
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: tensor \"blk.1.attn_k.weight\": type I16 cannot be read; readable: F32, "
            "F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16");
}

TEST_F(GgufModelTest, VectorsOfBlocksAreRefused) {
  ModelSpec spec = fixtures::tiny_spec();
  spec.hidden_size = 32;
  GgufWriter writer = fixtures::gguf_model(fixtures::make_tiny_model(spec, 1));
  writer.tensor("output_norm.weight").type = 8;
  writer.tensor("output_norm.weight").data = std::string(34, '\0');
  EXPECT_EQ(refusal(writer),
            "tiny.gguf: tensor \"output_norm.weight\": type Q8_0 cannot be read as a vector; "
            "readable: F32, F16, BF16");
}

}  // namespace
}  // namespace kv
