// DeepSeek-V2: what its configuration declares of latents and experts, and what is refused.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/cached_layers.h"
#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using Json = nlohmann::json;
using fixtures::TinyModel;

TinyModel tiny_deepseek(int q_rank) {
  ModelSpec spec = fixtures::tiny_spec("deepseek_v2");
  spec.num_layers = 3;
  spec.latent = LatentSpec{q_rank, 16, 6, 4, 10};
  spec.num_kv_heads = 1;
  spec.head_dim = 20;
  spec.softmax_scale = 1 / std::sqrt(10.0);
  spec.dense_layers = 1;
  spec.dense_intermediate_size = 40;
  spec.intermediate_size = 12;
  spec.num_experts = 4;
  spec.experts_per_token = 2;
  spec.shared_intermediate_size = 24;
  return fixtures::make_tiny_model(spec, 5);
}

/// Opens the tiny model with some keys of config.json changed; "absent" takes one away.
ModelSpec opened(int q_rank, const Json& patch) {
  const TinyModel model = tiny_deepseek(q_rank);
  const fixtures::ScratchFolder folder;
  fixtures::write_hf_model(folder.path(), model);
  Json config = Json::parse(fixtures::hf_config(model.spec));
  for (const auto& [key, value] : patch.items()) {
    value == "absent" ? void(config.erase(key)) : void(config[key] = value);
  }
  fixtures::write_file(folder / "config.json", config.dump());
  return Checkpoint::open(folder.path())->spec();
}

std::string refused(const Json& patch) {
  try {
    opened(0, patch);
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

TEST(LatentConfig, DirectoriesGiveTheModelBack) {
  for (const int q_rank : {0, 14}) {
    const TinyModel model = tiny_deepseek(q_rank);
    const fixtures::ScratchFolder folder;
    fixtures::write_hf_model(folder.path(), model);
    const auto checkpoint = Checkpoint::open(folder.path());
    EXPECT_EQ(other_parts_text(checkpoint->spec()), other_parts_text(model.spec));
    EXPECT_EQ(checkpoint->spec().num_kv_heads, 1);
    EXPECT_EQ(checkpoint->spec().head_dim, 20);
    for (const RequiredTensor& tensor : required_tensors(model.spec)) {
      ASSERT_EQ(checkpoint->shape(tensor.name), tensor.shape) << tensor.name;
      std::vector<float> found(model.weights.at(tensor.name).size());
      checkpoint->read_f32(tensor.name, 0, tensor.shape[0], found.data());
      EXPECT_EQ(found, model.weights.at(tensor.name)) << tensor.name;
    }
    EXPECT_TRUE(checkpoint->unread().empty());
  }
}

/// V2-Lite's own numbers: factor 40, mscale and mscale_all_dim 0.707.
TEST(LatentConfig, YarnStretchesTheScoresToo) {
  const ModelSpec spec = opened(0, {{"rope_scaling",
                                     {{"type", "yarn"},
                                      {"factor", 40},
                                      {"original_max_position_embeddings", 4096},
                                      {"beta_fast", 32},
                                      {"beta_slow", 1},
                                      {"mscale", 0.707},
                                      {"mscale_all_dim", 0.707}}}});
  EXPECT_EQ(attention_factor(spec.rope), 1.0);
  const double amplitude = 0.0707 * std::log(40.0) + 1;
  EXPECT_NEAR(spec.score_scale(), amplitude * amplitude / std::sqrt(10.0), 1e-12);
  EXPECT_NEAR(amplitude * amplitude, 1.5896, 1e-4);
}

TEST(LatentConfig, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(refused({{"scoring_func", "sigmoid"}}),
            "config.json: scoring_func: expected \"softmax\", found \"sigmoid\"");
  EXPECT_EQ(refused({{"topk_method", "noaux_tc"}}),
            "config.json: topk_method: expected \"greedy\" or \"group_limited_greedy\", found "
            "\"noaux_tc\"");
  EXPECT_EQ(refused({{"norm_topk_prob", true}, {"routed_scaling_factor", 16.0}}),
            "config.json: norm_topk_prob: expected false beside a routed_scaling_factor (engines "
            "differ in whether both apply), found true");
  EXPECT_EQ(refused({{"moe_layer_freq", 2}}), "config.json: moe_layer_freq: expected 1, found 2");
  EXPECT_EQ(refused({{"rope_interleave", false}}),
            "config.json: rope_interleave: expected true, found false");
  EXPECT_EQ(refused({{"attention_bias", true}}),
            "config.json: attention_bias: expected false, found true");
  EXPECT_EQ(refused({{"kv_lora_rank", "absent"}}),
            "config.json: kv_lora_rank: expected this key, found none");
  EXPECT_EQ(refused({{"qk_rope_head_dim", 5}}),
            "config.json: qk_rope_head_dim: expected an even number (RoPE turns pairs), found 5");
  EXPECT_EQ(refused({{"num_experts_per_tok", 5}}),
            "config.json: num_experts_per_tok: expected 1 to 4, found 5");
  EXPECT_EQ(
      refused({{"topk_method", "group_limited_greedy"}, {"n_group", 4}, {"topk_group", 1}}),
      "config.json: topk_group: expected groups of 1 that hold num_experts_per_tok = 2 experts, "
      "found 1");
  EXPECT_EQ(refused({{"model_type", "deepseek_v3"}}).substr(0, 40),
            "config.json: model_type: expected one of");
}

TEST(LatentConfig, GgufIsRefusedByName) {
  fixtures::GgufWriter writer =
      fixtures::gguf_model(fixtures::make_tiny_model(fixtures::tiny_spec("llama"), 1));
  writer.set_text("general.architecture", "deepseek2");
  const fixtures::ScratchFolder folder;
  fixtures::write_file(folder / "model.gguf", writer.bytes());
  try {
    Checkpoint::open(folder / "model.gguf");
    FAIL() << "read";
  } catch (const UnsupportedError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("general.architecture"), std::string::npos) << text;
    EXPECT_NE(text.find("deepseek2"), std::string::npos) << text;
  }
}

/// Case 81: what `plan` knows of a model that does not run here.
TEST(LatentConfig, Case81PlanNeedsTheConfigurationAlone) {
  const fixtures::ScratchFolder folder;
  fixtures::write_file(folder / "config.json",
                       R"({"model_type":"deepseek_v3","num_hidden_layers":61,"hidden_size":7168,)"
                       R"("num_attention_heads":128,"num_key_value_heads":128,"kv_lora_rank":512,)"
                       R"("qk_rope_head_dim":64,"max_position_embeddings":163840})");
  ASSERT_TRUE(is_only_plannable(folder.path()));
  const CachedLayers cached = read_cached_layers(folder.path());
  ASSERT_EQ(cached.layers.size(), 61u);
  EXPECT_EQ(cached.layers[0].num_kv_heads, 1);
  EXPECT_EQ(cached.layers[0].head_dim, 576);
  EXPECT_EQ(cached.layers[0].latent_values, 512);
}

}  // namespace
}  // namespace kv
