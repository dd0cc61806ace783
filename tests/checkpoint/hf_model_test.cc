#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using Json = nlohmann::json;
using fixtures::SafetensorsWriter;
using fixtures::TinyModel;

class HfModelTest : public testing::Test {
 protected:
  void SetUp() override { fixtures::write_hf_model(folder_.path(), model_); }

  std::unique_ptr<Checkpoint> open() { return Checkpoint::open(folder_.path()); }
  std::string refusal() {
    try {
      open();
    } catch (const Error& error) {
      return error.what();
    }
    return "read";
  }
  void write_config(const Json& patch) {
    Json config = Json::parse(fixtures::hf_config(model_.spec));
    config.merge_patch(patch);  // null removes a key
    fixtures::write_file(folder_ / "config.json", config.dump());
  }
  std::string refusal_with(const Json& patch) {
    write_config(patch);
    return refusal();
  }
  // Splits the weights into two shards, tensors in turn.
  void write_shards(const std::string& first, const std::string& second) {
    std::filesystem::remove(folder_ / "model.safetensors");
    const SafetensorsWriter all = fixtures::hf_weights(model_);
    std::array<SafetensorsWriter, 2> parts;
    Json weight_map = Json::object();
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      parts[i % 2].tensors.push_back(all.tensors[i]);
      weight_map[all.tensors[i].name] = i % 2 == 0 ? first : second;
    }
    fixtures::write_file(folder_ / first, parts[0].bytes());
    fixtures::write_file(folder_ / second, parts[1].bytes());
    write_index(weight_map);
  }
  void write_index(const Json& weight_map) {
    fixtures::write_file(folder_ / "model.safetensors.index.json",
                         Json{{"weight_map", weight_map}}.dump());
  }

  const TinyModel model_ = fixtures::make_tiny_model(fixtures::tiny_spec(), 1);
  fixtures::ScratchFolder folder_;
};

// Tests named CaseN stand for that case of docs/cases.md.
TEST_F(HfModelTest, Case8ShardsInAnyOrderAndScalesBesideWeights) {
  SafetensorsWriter with_scales = fixtures::hf_weights(model_);
  with_scales.tensors.push_back({"model.layers.0.self_attn.k_proj.k_scale", "F32", {1}, "abcd"});
  fixtures::write_file(folder_ / "model.safetensors", with_scales.bytes());
  const std::string single = open()->content_sha256();
  write_shards("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
  EXPECT_EQ(open()->content_sha256(), single);
  for (const char* name :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    std::filesystem::remove(folder_ / name);
  }
  write_shards("model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors");
  EXPECT_EQ(open()->content_sha256(), single);
  EXPECT_TRUE(open()->notes().empty());
}

TEST_F(HfModelTest, ScalesAreListedAsUnread) {
  SafetensorsWriter writer = fixtures::hf_weights(model_);
  writer.tensors.push_back({"model.layers.1.self_attn.v_scale", "F32", {1}, "abcd"});
  fixtures::write_file(folder_ / "model.safetensors", writer.bytes());
  const auto checkpoint = open();
  for (const auto& [name, values] : model_.weights) {
    std::vector<float> out(values.size());
    checkpoint->read_f32(name, 0, checkpoint->shape(name)[0], out.data());
  }
  EXPECT_EQ(checkpoint->unread(), std::vector<std::string>{"model.layers.1.self_attn.v_scale"});
}

TEST_F(HfModelTest, IndexMayNotLeaveTheFolder) {
  const std::string shard = "model-00001-of-00002.safetensors";
  for (const std::string file : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..",
                                 "x.bin", "", "a\\b.safetensors"}) {
    write_shards(shard, "model-00002-of-00002.safetensors");
    write_index({{"model.norm.weight", file}});
    EXPECT_EQ(refusal(),
              "model.safetensors.index.json: weight_map: tensor \"model.norm.weight\": "
              "expected a file name ending in .safetensors, found " +
                  Json(file).dump());
  }
}

TEST_F(HfModelTest, IndexMustTellTheTruth) {
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  write_shards(first, second);
  write_index({{"model.norm.weight", first}, {"lm_head.weight", second}});
  EXPECT_NE(refusal().find("weight_map: tensor \""), std::string::npos) << refusal();
  write_index({{"model.norm.weight", "missing.safetensors"}});
  EXPECT_NE(refusal().find("missing.safetensors: cannot open"), std::string::npos);
  write_index({{"model.norm.weight", 7}});
  EXPECT_EQ(refusal(),
            "model.safetensors.index.json: weight_map.model.norm.weight: expected a file "
            "name, found 7");
  fixtures::write_file(folder_ / "model.safetensors.index.json", "{}");
  EXPECT_EQ(refusal(), "model.safetensors.index.json: weight_map: expected this key, found none");
}

TEST_F(HfModelTest, OneTensorInTwoShardsIsRefused) {
  write_shards("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
  fixtures::write_file(folder_ / "model-00002-of-00002.safetensors",
                       fixtures::hf_weights(model_).bytes());
  EXPECT_NE(refusal().find("is in another shard too"), std::string::npos) << refusal();
}

TEST_F(HfModelTest, SingleFileAndIndexTogetherAreRefused) {
  write_shards("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
  fixtures::write_hf_model(folder_.path(), model_);
  EXPECT_NE(refusal().find("engines differ in which they read"), std::string::npos);
}

TEST_F(HfModelTest, StrayFilesAreNoted) {
  std::filesystem::copy(folder_ / "model.safetensors", folder_ / "scales.safetensors");
  EXPECT_EQ(open()->notes(), std::vector<std::string>{"scales.safetensors is not read: "
                                                      "model.safetensors holds the weights"});
}

TEST_F(HfModelTest, StopTokensComeFromGenerationConfig) {
  fixtures::write_file(folder_ / "generation_config.json", R"({"eos_token_id": [7, 2, 7]})");
  EXPECT_EQ(open()->spec().eos_ids, (std::vector<int32_t>{7, 2}));
  fixtures::write_file(folder_ / "generation_config.json", R"({"eos_token_id": 9})");
  EXPECT_EQ(open()->spec().eos_ids, (std::vector<int32_t>{9}));
  fixtures::write_file(folder_ / "generation_config.json", R"({"temperature": 0.7})");
  EXPECT_EQ(open()->spec().eos_ids, (std::vector<int32_t>{2}));
  fixtures::write_file(folder_ / "generation_config.json", R"({"eos_token_id": 99})");
  EXPECT_EQ(refusal(),
            "config.json: eos token: expected a token id below vocab_size = 40, found 99");
}

TEST_F(HfModelTest, ChatTemplateComesFromEitherFile) {
  EXPECT_EQ(open()->chat_template(), "");
  fixtures::write_file(folder_ / "tokenizer_config.json",
                       R"({"chat_template": "old", "add_bos_token": true})");
  EXPECT_EQ(open()->chat_template(), "old");
  EXPECT_TRUE(open()->spec().add_bos);
  fixtures::write_file(folder_ / "tokenizer_config.json",
                       R"({"chat_template": [{"name": "tool_use", "template": "t"},)"
                       R"( {"name": "default", "template": "d"}]})");
  EXPECT_EQ(open()->chat_template(), "d");
  fixtures::write_file(folder_ / "chat_template.jinja", "new");
  EXPECT_EQ(open()->chat_template(), "new");
}

TEST_F(HfModelTest, DefaultsOfTheClasses) {
  ModelSpec spec = model_.spec;
  spec.num_kv_heads = 4;
  spec.head_dim = 6;
  fixtures::write_hf_model(folder_.path(), fixtures::make_tiny_model(spec, 1));
  write_config({{"num_key_value_heads", nullptr},
                {"head_dim", nullptr},
                {"rope_theta", nullptr},
                {"tie_word_embeddings", nullptr},
                {"hidden_act", nullptr},
                {"architectures", nullptr},
                {"bos_token_id", nullptr},
                {"eos_token_id", nullptr}});
  const auto checkpoint = open();
  EXPECT_EQ(checkpoint->spec().num_kv_heads, 4);
  EXPECT_EQ(checkpoint->spec().head_dim, 6);
  EXPECT_EQ(checkpoint->spec().rope.theta, 10000.0);
  EXPECT_TRUE(checkpoint->spec().eos_ids.empty());
}

TEST_F(HfModelTest, RefusesOtherModels) {
  EXPECT_EQ(refusal_with({{"model_type", "deepseek_v3"}}),
            "config.json: model_type: expected one of llama, mistral, mixtral, qwen2, qwen3, "
            "qwen3_moe, phi3, gemma2, gemma3_text, deepseek_v2, found \"deepseek_v3\"");
  EXPECT_EQ(refusal_with({{"architectures", {"LlamaForSequenceClassification"}}}),
            "config.json: architectures: expected [\"LlamaForCausalLM\"], found "
            "[\"LlamaForSequenceClassification\"]");
  EXPECT_EQ(refusal_with({{"hidden_act", "gelu"}}),
            "config.json: hidden_act: expected \"silu\", found gelu");
  EXPECT_EQ(refusal_with({{"mlp_bias", true}}),
            "config.json: mlp_bias: expected false, found true");
  EXPECT_EQ(refusal_with({{"use_sliding_window", true}}),
            "config.json: use_sliding_window: expected false, found true");
  EXPECT_EQ(refusal_with({{"layer_types", {"full_attention", "sliding_attention"}}}),
            "config.json: layer_types: expected \"full_attention\" for every layer, found "
            "\"sliding_attention\"");
  EXPECT_EQ(refusal_with({{"sliding_window", 4096}, {"use_sliding_window", false}}), "read");
}

TEST_F(HfModelTest, RefusesFieldsByName) {
  EXPECT_EQ(refusal_with({{"num_hidden_layers", nullptr}}),
            "config.json: num_hidden_layers: expected this key, found none");
  EXPECT_EQ(refusal_with({{"num_hidden_layers", "two"}}),
            "config.json: num_hidden_layers: expected an integer of 1 to 1024, found \"two\"");
  EXPECT_EQ(refusal_with({{"num_hidden_layers", 2.5}}),
            "config.json: num_hidden_layers: expected an integer of 1 to 1024, found 2.5");
  EXPECT_EQ(refusal_with({{"num_hidden_layers", 18446744073709551615u}}),
            "config.json: num_hidden_layers: expected an integer of 1 to 1024, found "
            "18446744073709551615");
  EXPECT_EQ(refusal_with({{"hidden_size", -24}}),
            "config.json: hidden_size: expected 1 to 1048576, found -24");
  EXPECT_EQ(refusal_with({{"head_dim", 7}}),
            "config.json: head_dim: expected an even number (RoPE turns pairs), found 7");
  EXPECT_EQ(refusal_with({{"head_dim", nullptr}, {"hidden_size", 26}}),
            "config.json: head_dim: absent, and hidden_size = 26 is no multiple of "
            "num_attention_heads = 4");
  EXPECT_EQ(refusal_with({{"num_key_value_heads", 3}}),
            "config.json: num_q_heads: expected a multiple of num_kv_heads = 3, found 4");
  EXPECT_EQ(refusal_with({{"rms_norm_eps", 0}}),
            "config.json: rms_norm_eps: expected a number between 0 and 1, found 0");
  EXPECT_EQ(refusal_with({{"rms_norm_eps", true}}),
            "config.json: rms_norm_eps: expected a number, found true");
  EXPECT_EQ(refusal_with({{"tie_word_embeddings", 1}}),
            "config.json: tie_word_embeddings: expected true or false, found 1");
  EXPECT_EQ(refusal_with({{"eos_token_id", {2, 40}}}),
            "config.json: eos token: expected a token id below vocab_size = 40, found 40");
}

TEST_F(HfModelTest, RefusesConfigsThatAreNoObject) {
  fixtures::write_file(folder_ / "config.json", "[]");
  EXPECT_EQ(refusal(), "config.json: the whole file: expected an object, found []");
  fixtures::write_file(folder_ / "config.json", "null");
  EXPECT_EQ(refusal(), "config.json: the whole file: expected an object, found null");
  fixtures::write_file(folder_ / "config.json", "");
  EXPECT_EQ(refusal().find("config.json: no valid JSON: "), 0u);
  fixtures::write_file(folder_ / "config.json", R"({"a": 1, "a": 1})");
  EXPECT_EQ(refusal(), "config.json: key \"a\" occurs twice in one object");
}

const char* const kAccepted =
    ": quantized weights are not supported; accepted are safetensors weights in BF16, F16 or F32, "
    "with or without scales for the KV cache, and GGUF files";

TEST_F(HfModelTest, Case98QuantizedWeightsAreNamed) {
  EXPECT_EQ(
      refusal_with({{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}}}),
      std::string("config.json: quantization_config.quant_method: found \"awq\"") + kAccepted);
  EXPECT_EQ(
      refusal_with({{"quantization_config", {{"quant_method", "fp8"}}}}),
      std::string("config.json: quantization_config.quant_method: found \"fp8\"") + kAccepted);
  EXPECT_EQ(refusal_with({{"quantization_config",
                           {{"quant_method", "compressed-tensors"},
                            {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}}}}}}}}}}),
            std::string("config.json: quantization_config.config_groups.group_0.weights: found "
                        "{\"num_bits\":4}") +
                kAccepted);
  EXPECT_EQ(
      refusal_with(
          {{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}}),
      std::string("config.json: quantization_config.quant_algo: found \"NVFP4\"") + kAccepted);
}

TEST_F(HfModelTest, Case98AlsoInModelOptsOwnFile) {
  const auto with = [&](const Json& content) {
    fixtures::write_file(folder_ / "hf_quant_config.json", content.dump());
    return refusal();
  };
  EXPECT_EQ(
      with({{"quantization", {{"quant_algo", "FP8"}}}}),
      std::string("hf_quant_config.json: quantization.quant_algo: found \"FP8\"") + kAccepted);
  EXPECT_EQ(with({{"quant_algo", "FP8"}}),
            std::string("hf_quant_config.json: quant_algo: found \"FP8\"") + kAccepted);
  EXPECT_EQ(with({{"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}}}}),
            "read");
}

TEST_F(HfModelTest, ScalesOfTheCacheAloneAreFine) {
  EXPECT_EQ(refusal_with({{"quantization_config",
                           {{"quant_method", "compressed-tensors"},
                            {"config_groups", Json::object()},
                            {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}}}}}}),
            "read");
  EXPECT_EQ(refusal_with({{"quantization_config",
                           {{"quant_method", "modelopt"}, {"kv_cache_scheme", "NVFP4"}}}}),
            "read");
}

TEST_F(HfModelTest, QuantizedDtypesAreNamedEvenUndeclared) {
  SafetensorsWriter writer = fixtures::hf_weights(model_);
  writer.tensors[2].dtype = "F8_E4M3";
  writer.tensors[2].data.resize(writer.tensors[2].data.size() / 2);
  fixtures::write_file(folder_ / "model.safetensors", writer.bytes());
  EXPECT_NE(refusal().find("type F8_E4M3 cannot be read"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace kv
