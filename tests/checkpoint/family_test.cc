// The architectures beside Llama and Qwen2: what their files declare, in both kinds of file.

#include "checkpoint/family.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/cached_layers.h"
#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using Json = nlohmann::json;
using fixtures::TinyModel;

TinyModel tiny_family(const std::string& architecture) {
  ModelSpec spec = fixtures::tiny_spec(architecture);
  spec.num_layers = 3;
  fixtures::add_family_parts(spec, 12, 4);
  return fixtures::make_tiny_model(spec, 3);
}

class Families : public testing::TestWithParam<std::string> {
 protected:
  const TinyModel model_ = tiny_family(GetParam());
  fixtures::ScratchFolder folder_;
};

TEST_P(Families, DirectoriesGiveTheModelBack) {
  fixtures::write_hf_model(folder_.path(), model_);
  const auto checkpoint = Checkpoint::open(folder_.path());
  EXPECT_EQ(other_parts_text(checkpoint->spec()), other_parts_text(model_.spec));
  EXPECT_EQ(checkpoint->spec().norm_offset, model_.spec.norm_offset);
  for (const RequiredTensor& tensor : required_tensors(model_.spec)) {
    ASSERT_EQ(checkpoint->shape(tensor.name), tensor.shape) << tensor.name;
    std::vector<float> found(model_.weights.at(tensor.name).size());
    checkpoint->read_f32(tensor.name, 0, tensor.shape[0], found.data());
    EXPECT_EQ(found, model_.weights.at(tensor.name)) << tensor.name;
  }
  EXPECT_TRUE(checkpoint->unread().empty());
}

TEST_P(Families, FilesInGgufDeclareTheSame) {
  TinyModel model = model_;
  const bool has_windows = !family_of(model.spec).is_interleaved_in_gguf();
  if (!has_windows) model.spec.windows.clear();
  fixtures::write_file(folder_ / "tiny.gguf", fixtures::gguf_model(model).bytes());
  const auto checkpoint = Checkpoint::open(folder_ / "tiny.gguf");
  EXPECT_EQ(other_parts_text(checkpoint->spec()), other_parts_text(model.spec));
  EXPECT_EQ(checkpoint->spec().norm_offset, 0);
  if (GetParam() == "mistral") {
    EXPECT_EQ(checkpoint->spec().architecture, "llama");  // GGUF does not tell them apart
  } else {
    EXPECT_EQ(checkpoint->spec().architecture, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Values("mistral", "mixtral", "qwen3", "qwen3_moe", "phi3",
                                         "gemma2", "gemma3_text"),
                         [](const auto& tested) { return tested.param; });

/// What read_hf_config makes of a tiny model's config.json with some keys changed.
ModelSpec spec_with(const std::string& architecture, const Json& patch) {
  const TinyModel model = tiny_family(architecture);
  const fixtures::ScratchFolder folder;
  fixtures::write_hf_model(folder.path(), model);
  Json config = Json::parse(fixtures::hf_config(model.spec));
  for (const auto& [key, value] : patch.items()) {
    if (value == "absent") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  fixtures::write_file(folder / "config.json", config.dump());
  return Checkpoint::open(folder.path())->spec();
}

std::string refusal_with(const std::string& architecture, const Json& patch) {
  try {
    spec_with(architecture, patch);
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

using Windows = std::vector<int>;

TEST(FamilyWindows, FollowTheClassWhereLayersAreNotListed) {
  const Json unlisted = {{"layer_types", "absent"}};
  EXPECT_EQ(spec_with("gemma2", unlisted).windows, (Windows{12, 0, 12}));
  EXPECT_EQ(spec_with("gemma3_text", unlisted).windows, (Windows{12, 12, 12}));
  EXPECT_EQ(
      spec_with("gemma3_text", {{"layer_types", "absent"}, {"sliding_window_pattern", 3}}).windows,
      (Windows{12, 12, 0}));
  EXPECT_EQ(spec_with("mistral", {}).windows, (Windows{12, 12, 12}));
  EXPECT_EQ(spec_with("mistral", {{"sliding_window", nullptr}}).windows, Windows{});
  EXPECT_EQ(spec_with("mistral", {{"sliding_window", "absent"}}).windows[0], 4096);
  EXPECT_EQ(spec_with("mixtral", {{"sliding_window", "absent"}}).windows, Windows{});
  EXPECT_EQ(spec_with("qwen3", {{"sliding_window", 9}}).windows, Windows{});
  EXPECT_EQ(
      spec_with("qwen2",
                {{"sliding_window", 9}, {"use_sliding_window", true}, {"max_window_layers", 2}})
          .windows,
      (Windows{0, 0, 9}));
}

TEST(FamilyWindows, ListedLayersMustBeWhatTheClassMakesOfThem) {
  EXPECT_EQ(
      refusal_with("mistral",
                   {{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}),
      "config.json: layer_types: expected what sliding_window = 12 makes of a mistral, found "
      "\"full_attention\"");
  EXPECT_EQ(refusal_with("gemma2", {{"layer_types", {"full_attention"}}}),
            "config.json: layer_types: expected a list of 3 layers, found [\"full_attention\"]");
  EXPECT_EQ(refusal_with("gemma2", {{"layer_types", {"full_attention", "linear_attention", ""}}}),
            "config.json: layer_types: expected what sliding_window = 12 makes of a gemma2, found "
            "\"linear_attention\"");
}

TEST(FamilyWindows, OfGgufAreReadWhereItSaysWhichLayersHaveThem) {
  const fixtures::ScratchFolder folder;
  const auto refusal = [&](const char* architecture, void (*change)(fixtures::GgufWriter&)) {
    fixtures::GgufWriter writer = fixtures::gguf_model(tiny_family(architecture));
    change(writer);
    fixtures::write_file(folder / "tiny.gguf", writer.bytes());
    try {
      Checkpoint::open(folder / "tiny.gguf");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_EQ(refusal("qwen3", [](auto& w) { w.set_u32("qwen3.attention.sliding_window", 9); }),
            "tiny.gguf: qwen3.attention.sliding_window: expected 0 or no such key, found 9");
  EXPECT_EQ(refusal("gemma3_text", [](auto& w) { w.erase("gemma3.attention.sliding_window"); }),
            "tiny.gguf: gemma3.attention.sliding_window: expected this key, found none");
  EXPECT_EQ(refusal("phi3", [](auto& w) { w.erase("phi3.attention.sliding_window"); }), "read");
}

TEST(FamilyRopes, TwoBasesInBothSpellings) {
  const ModelSpec old =
      spec_with("gemma3_text", {{"rope_theta", 1e6},
                                {"rope_local_base_freq", 5e3},
                                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  const ModelSpec current = spec_with(
      "gemma3_text",
      {{"rope_theta", "absent"},
       {"rope_local_base_freq", "absent"},
       {"rope_parameters",
        {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
         {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}}}}});
  for (const ModelSpec& spec : {old, current}) {
    EXPECT_EQ(spec.rope.theta, 1e6);
    EXPECT_EQ(spec.rope.type, RopeType::kLinear);
    ASSERT_TRUE(spec.window_rope.has_value());
    EXPECT_EQ(spec.window_rope->theta, 5e3);
    EXPECT_EQ(spec.window_rope->type, RopeType::kDefault);
  }
}

TEST(FamilyRopes, DynamicStretchesNothingWithinTheContext) {
  const ModelSpec spec =
      spec_with("mistral", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}}});
  EXPECT_EQ(inv_freq(spec.rope, 8), inv_freq(RopeSpec{}, 8));
  EXPECT_EQ(spec.rope.type, RopeType::kDynamic);
}

TEST(FamilyDefaults, AreThoseOfTheClasses) {
  const ModelSpec gemma = spec_with("gemma2", {{"attn_logit_softcapping", "absent"},
                                               {"final_logit_softcapping", nullptr},
                                               {"tie_word_embeddings", "absent"},
                                               {"query_pre_attn_scalar", 16}});
  EXPECT_EQ(gemma.attention_soft_cap, 50);
  EXPECT_EQ(gemma.logit_soft_cap, 0);
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_EQ(gemma.softmax_scale, 0.25);
  EXPECT_FALSE(spec_with("qwen3_moe", {{"norm_topk_prob", "absent"}}).renormalizes_experts);
}

TEST(FamilyRefusals, NameTheField) {
  EXPECT_EQ(refusal_with("gemma3_text", {{"attn_logit_softcapping", 50.0}}),
            "config.json: attn_logit_softcapping: expected null or no such key, found 50.0");
  EXPECT_EQ(refusal_with("gemma3_text", {{"use_bidirectional_attention", true}}),
            "config.json: use_bidirectional_attention: expected false, found true");
  EXPECT_EQ(refusal_with("gemma2", {{"hidden_activation", "gelu"}}),
            "config.json: hidden_activation: expected \"gelu_pytorch_tanh\", found gelu");
  EXPECT_EQ(refusal_with("qwen3", {{"attention_bias", true}}),
            "config.json: attention_bias: expected false, found true");
  EXPECT_EQ(refusal_with("qwen3_moe", {{"mlp_only_layers", {0}}}),
            "config.json: mlp_only_layers: expected an empty list, found [0]");
  EXPECT_EQ(refusal_with("qwen3_moe", {{"decoder_sparse_step", 2}}),
            "config.json: decoder_sparse_step: expected 1, found 2");
  EXPECT_EQ(refusal_with("qwen3_moe", {{"num_experts_per_tok", 5}}),
            "config.json: num_experts_per_tok: expected 1 to 4, found 5");
  EXPECT_EQ(refusal_with("phi3", {{"partial_rotary_factor", 0.75}}),
            "config.json: partial_rotary_factor: expected 1, found another number");
  EXPECT_EQ(refusal_with(
                "phi3", {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1, 1, 1}}}}}),
            "config.json: rope_scaling.short_factor: longrope is not supported");
}

/// A model of gpt-oss's geometry, which does not run here.
Json gpt_oss() {
  Json types = Json::array();
  for (int i = 0; i < 24; ++i) types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
  return {
      {"model_type", "gpt_oss"},   {"num_hidden_layers", 24},  {"hidden_size", 2880},
      {"num_attention_heads", 64}, {"num_key_value_heads", 8}, {"head_dim", 64},
      {"sliding_window", 128},     {"layer_types", types},     {"max_position_embeddings", 131072}};
}

TEST(CachedLayersOfOtherModels, ComeFromTheConfigurationAlone) {
  const fixtures::ScratchFolder folder;
  fixtures::write_file(folder / "config.json", gpt_oss().dump());
  EXPECT_TRUE(is_only_plannable(folder.path()));
  const CachedLayers cached = read_cached_layers(folder.path());
  ASSERT_EQ(cached.layers.size(), 24u);
  EXPECT_EQ(cached.layers[0].window, 128);
  EXPECT_EQ(cached.layers[1].window, 0);
  EXPECT_EQ(cached.layers[1].num_kv_heads, 8);
  EXPECT_EQ(cached.layers[1].head_dim, 64);
  EXPECT_EQ(cached.max_positions, 131072);
}

// Full layers may have other heads than those with a window (Gemma 4).
TEST(CachedLayersOfOtherModels, Case78FullLayersMayHaveHeadsOfTheirOwn) {
  const fixtures::ScratchFolder folder;
  Json config = gpt_oss();
  config.merge_patch({{"head_dim", 256}, {"global_head_dim", 512}});
  fixtures::write_file(folder / "config.json", config.dump());
  CachedLayers cached = read_cached_layers(folder.path());
  EXPECT_EQ(cached.layers[0].head_dim, 256);
  EXPECT_EQ(cached.layers[1].head_dim, 512);
  EXPECT_EQ(cached.layers[1].num_kv_heads, 8);
  config["num_global_key_value_heads"] = 2;
  fixtures::write_file(folder / "config.json", config.dump());
  cached = read_cached_layers(folder.path());
  EXPECT_EQ(cached.layers[0].num_kv_heads, 8);
  EXPECT_EQ(cached.layers[1].num_kv_heads, 2);
}

// Of a hybrid the state does not shrink: every fourth layer caches.
TEST(CachedLayersOfOtherModels, Case80RecurrentStatesAreCountedApart) {
  const fixtures::ScratchFolder folder;
  Json config = gpt_oss(), types = Json::array();
  for (int i = 0; i < 24; ++i) types.push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
  config.merge_patch({{"layer_types", types},
                      {"linear_num_value_heads", 32},
                      {"linear_value_head_dim", 128},
                      {"linear_num_key_heads", 16},
                      {"linear_key_head_dim", 128},
                      {"linear_conv_kernel_dim", 4}});
  fixtures::write_file(folder / "config.json", config.dump());
  const CachedLayers cached = read_cached_layers(folder.path());
  EXPECT_EQ(cached.layers.size(), 6u);
  EXPECT_EQ(cached.state_layers, 18);
  const int64_t matrices = 32 * 128 * 128 * 4, convolution = (2 * 2048 + 4096) * 3 * 2;
  EXPECT_EQ(cached.state_bytes, 18 * (matrices + convolution));
}

TEST(CachedLayersOfOtherModels, WhatIsCachedOtherwiseIsRefusedByName) {
  const fixtures::ScratchFolder folder;
  const auto refusal = [&](const Json& patch) {
    Json config = gpt_oss();
    config.merge_patch(patch);
    fixtures::write_file(folder / "config.json", config.dump());
    try {
      read_cached_layers(folder.path());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_EQ(refusal({{"kv_lora_rank", 512}}),
            "config.json: qk_rope_head_dim: expected this key, found none");
  EXPECT_EQ(refusal({{"kv_lora_rank", 512}, {"qk_rope_head_dim", 64}, {"index_topk", 2048}}),
            "config.json: index_topk: the cache of an indexer beside the latents is not supported");
  EXPECT_EQ(refusal({{"layer_types", nullptr}}),
            "config.json: layer_types: expected one for each of 24 layers, found 0");
  EXPECT_EQ(refusal({{"layer_types", nullptr}, {"sliding_window", nullptr}}), "read");
  EXPECT_EQ(refusal({{"sliding_window", nullptr}}),
            "config.json: sliding_window: expected this key, found none");
  EXPECT_EQ(refusal({{"num_hidden_layers", 1}, {"layer_types", {"mamba"}}}),
            "config.json: layer_types: expected full_attention, sliding_attention and "
            "linear_attention, found \"mamba\"");
  EXPECT_EQ(refusal({{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}}),
            "config.json: linear_num_value_heads: expected this key, found none");
  EXPECT_EQ(refusal({{"num_hidden_layers", nullptr}}),
            "config.json: num_hidden_layers: expected 1 to 1024, found 0");
}

}  // namespace
}  // namespace kv
