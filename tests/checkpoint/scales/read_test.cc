// Every format in which scales are written, read into the one form.

#include <gtest/gtest.h>

#include "checkpoint/scales/scale_set.h"
#include "checkpoint/scales/sglang_json.h"
#include "kvscale/error.h"
#include "tests/checkpoint/scales/onnx_writer.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

using fixtures::kCtTensor;
using fixtures::ScaleFolder;
using fixtures::write_file;

void expect_all_scales(const ScaleSet& set, int num_layers = 4) {
  for (int layer = 0; layer < num_layers; ++layer) {
    const StoredScale* k = set.find(layer, ScaleSide::kK);
    const StoredScale* v = set.find(layer, ScaleSide::kV);
    ASSERT_TRUE(k != nullptr && v != nullptr) << layer;
    EXPECT_EQ(k->values, std::vector<float>{ScaleFolder::k_scale(layer)});
    EXPECT_EQ(v->values, std::vector<float>{ScaleFolder::v_scale(layer)});
  }
  EXPECT_EQ(set.unread.size(), 0u);
}

struct Format {
  std::string title, quantization, k, v;
  ScaleFamily family;
};

// The formats that differ in declaration and names only; values, dtype and shape travel alike.
const std::vector<Format> kFormats = {
    {"compressed-tensors", std::string(kCtTensor), "self_attn.k_scale", "self_attn.v_scale",
     ScaleFamily::kCompressedTensors},
    {"compressed-tensors 2024", std::string(kCtTensor), "self_attn.k_proj.output_scale",
     "self_attn.v_proj.output_scale", ScaleFamily::kCompressedTensors},
    {"ModelOpt unified", R"({"quant_method":"modelopt","quant_algo":"FP8","kv_cache_scheme":
      {"dynamic":false,"num_bits":8,"type":"float"}})",
     "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale", ScaleFamily::kModelOpt},
    {"ModelOpt Megatron", R"({"quant_method":"modelopt","quant_algo":"FP8","kv_cache_scheme":
      {"dynamic":false,"num_bits":8,"type":"float"}})",
     "self_attn.k_scale", "self_attn.v_scale", ScaleFamily::kModelOpt},
    {"AutoFP8", R"({"quant_method":"fp8","activation_scheme":"static","kv_cache_scheme":"static"})",
     "self_attn.k_scale", "self_attn.v_scale", ScaleFamily::kFp8},
    {"Quark", R"({"quant_method":"quark","kv_cache_quant_config":{"*k_proj":{"output_tensors":
      {"dtype":"fp8_e4m3","qscheme":"per_tensor","is_dynamic":false}}}})",
     "self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale", ScaleFamily::kQuark}};

TEST(ReadScales, EveryNamingOfTheTable) {
  for (const Format& format : kFormats) {
    SCOPED_TRACE(format.title);
    ScaleFolder folder;
    folder.scales(format.k, format.v);
    folder.write(format.quantization);
    const ScaleSet set = read_scales(folder.path());
    EXPECT_EQ(set.declared.family, format.family);
    EXPECT_TRUE(set.declared.has_kv && set.declared.is_fp8);
    EXPECT_EQ(set.geometry.num_kv_heads, 2);
    expect_all_scales(set);
    EXPECT_EQ(set.scales[0].spelling, format.k);
    EXPECT_EQ(set.scales[0].file, "model.safetensors");
    EXPECT_EQ(set.scales[0].shape, std::vector<int64_t>{1});
  }
}

TEST(ReadScales, OneNumberForKAndV) {
  ScaleFolder folder(1);
  folder.tensor("model.layers.0.self_attn.kv_scale", "F32", {}, {0.5f});
  folder.write(R"({"quant_method":"fp8","activation_scheme":"static"})");
  const ScaleSet set = read_scales(folder.path());
  ASSERT_EQ(set.scales.size(), 2u);
  for (const StoredScale& scale : set.scales) {
    EXPECT_TRUE(scale.is_shared);
    EXPECT_EQ(scale.values, std::vector<float>{0.5f});
  }
}

TEST(ReadScales, TensorRtLlmAndMistralFiles) {
  fixtures::ScratchFolder trt;
  write_file(trt / "config.json",
             R"({"architecture":"LlamaForCausalLM","dtype":"bfloat16","num_hidden_layers":1,
      "num_attention_heads":4,"num_key_value_heads":2,"head_size":64,
      "quantization":{"quant_algo":null,"kv_cache_quant_algo":"FP8"}})");
  fixtures::SafetensorsWriter shard;
  shard.tensors = {{"transformer.layers.0.attention.kv_cache_scaling_factor",
                    "F32",
                    {1},
                    fixtures::encoded({1.5f}, "F32")}};
  write_file(trt / "rank0.safetensors", shard.bytes());
  write_file(trt / "rank1.safetensors", shard.bytes());
  const ScaleSet legacy = read_scales(trt.path());
  EXPECT_EQ(legacy.declared.family, ScaleFamily::kTensorRtLlm);
  EXPECT_EQ(legacy.scales.size(), 4u) << "two ranks, two sides";
  EXPECT_EQ(legacy.find(0, ScaleSide::kV, 1)->rank, 1);

  fixtures::ScratchFolder mistral;
  write_file(mistral / "params.json",
             R"({"dim":256,"n_layers":1,"n_heads":4,"n_kv_heads":2,"head_dim":64})");
  shard.tensors = {
      {"layers.0.attention.k_fake_quantizer.qscale_act",
       "BF16",
       {},
       fixtures::encoded({0.5f}, "BF16")},
      {"layers.0.attention.v_fake_quantizer.qscale_act",
       "BF16",
       {},
       fixtures::encoded({0.25f}, "BF16")},
      {"layers.0.attention.wq.qscale_act", "BF16", {}, fixtures::encoded({0.125f}, "BF16")}};
  write_file(mistral / "consolidated.safetensors", shard.bytes());
  const ScaleSet native = read_scales(mistral.path());
  EXPECT_EQ(native.declared.family, ScaleFamily::kMistral);
  ASSERT_EQ(native.scales.size(), 2u);
  EXPECT_EQ(native.find(0, ScaleSide::kV)->values, std::vector<float>{0.25f});
  EXPECT_TRUE(native.unread.empty()) << "the scale of an activation is not the cache's";
}

TEST(ReadScales, SglangJsonWithAndWithoutModelType) {
  fixtures::ScratchFolder folder;
  const auto path = folder / "kv_cache_scales.json";
  write_file(path, sglang_json_text("llama", {{0.5f, 0.03f}, {0.25f, 0.125f}}));
  const ScaleSet set = read_scales(path);
  EXPECT_EQ(set.geometry.num_layers, 2);
  EXPECT_EQ(set.scales.size(), 8u);
  EXPECT_EQ(set.find(1, ScaleSide::kK, 0)->values, std::vector<float>{0.03f}) << "the same F32";
  EXPECT_EQ(set.find(0, ScaleSide::kV, 1)->values, std::vector<float>{0.25f});
  EXPECT_TRUE(set.notes.empty());
  write_file(path, R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":0.5}}}})");
  EXPECT_EQ(read_scales(path).notes.size(), 1u);
  for (const char* bad :
       {R"({"kv_cache":{"dtype":"float8_e5m2","scaling_factor":{}}})",
        R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"x":{"0":1}}}})",
        R"({"kv_cache":{"dtype":"float8_e4m3fn","scaling_factor":{"0":{"0":"1"}}}})",
        R"({"kv_cache":{}})"}) {
    write_file(path, bad);
    EXPECT_THROW(read_scales(path), FormatError) << bad;
  }
}

TEST(ReadScales, EdgeLlmGraphsOfBothAges) {
  fixtures::ScratchFolder folder;
  const auto path = folder / "model.onnx";
  write_file(path, fixtures::onnx_model(
                       {fixtures::onnx_node("/layers.3/attn", {"q", "scale_3"}, {}),
                        fixtures::onnx_tensor("scale_3.k_v_scale_quant_orig", {0.5f, 0.25f})}));
  EXPECT_TRUE(read_scales(path).scales.empty()) << "the node names another input";
  write_file(path, fixtures::onnx_model(
                       {fixtures::onnx_node("/layers.3/attn", {"q", "l3.k_v_scale_quant_orig"}, {}),
                        fixtures::onnx_tensor("l3.k_v_scale_quant_orig", {0.5f, 0.25f})}));
  const ScaleSet old = read_scales(path);
  EXPECT_EQ(old.declared.family, ScaleFamily::kEdgeOnnx);
  EXPECT_EQ(old.find(3, ScaleSide::kK)->values, std::vector<float>{0.5f});
  EXPECT_EQ(old.find(3, ScaleSide::kV)->values, std::vector<float>{0.25f});
  write_file(path,
             fixtures::onnx_model({fixtures::onnx_node("attn_0", {"q"}, {1.0f, 0.5f, 0.125f})}));
  const ScaleSet now = read_scales(folder.path());
  EXPECT_EQ(now.find(0, ScaleSide::kQ)->values, std::vector<float>{1.0f});
  EXPECT_EQ(now.find(0, ScaleSide::kV)->values, std::vector<float>{0.125f});
  write_file(path, fixtures::onnx_model({fixtures::onnx_node("attn_0", {"q"}, {1.0f})}));
  EXPECT_THROW(read_scales(path), FormatError);
}

TEST(ReadScales, DtypesAndShapesOfOneValueAndOfHeads) {
  for (const std::string dtype : {"F32", "BF16", "F16", "F64"}) {
    ScaleFolder folder(1);
    folder.tensor("model.layers.0.self_attn.k_scale", dtype, {}, {0.375f});
    folder.tensor("model.layers.0.self_attn.v_scale", dtype, {1}, {0.375f});
    folder.write(kCtTensor);
    const ScaleSet set = read_scales(folder.path());
    ASSERT_EQ(set.scales.size(), 2u) << dtype;
    for (const StoredScale& scale : set.scales) {
      EXPECT_EQ(scale.values, std::vector<float>{0.375f}) << dtype;
      EXPECT_EQ(scale.dtype, dtype);
      EXPECT_EQ(scale_shape(scale, set.geometry), ScaleShape::kPerTensor);
    }
  }
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, {2, 1}, {2, 1, 1}}) {
    ScaleFolder folder(1);
    folder.tensor("model.layers.0.self_attn.k_scale", "BF16", shape, {0.5f, 0.25f});
    folder.tensor("model.layers.0.self_attn.q_scale", "BF16", {4, 1, 1}, {1, 2, 3, 4});
    folder.write(
        fixtures::replaced(std::string(kCtTensor), "tensor\",\"symm", "attn_head\",\"symm"));
    const ScaleSet set = read_scales(folder.path());
    EXPECT_EQ(set.find(0, ScaleSide::kK)->values, (std::vector<float>{0.5f, 0.25f}));
    EXPECT_EQ(scale_shape(*set.find(0, ScaleSide::kK), set.geometry), ScaleShape::kPerKvHead);
    EXPECT_EQ(scale_shape(*set.find(0, ScaleSide::kQ), set.geometry), ScaleShape::kPerQHead);
  }
}

TEST(ReadScales, Case02FourSpellingsOneValueAndAFifthUnread) {
  for (const std::string place :
       {"self_attn.", "self_attn.k_proj.", "self_attn.qkv_proj.", "self_attn.attn."}) {
    ScaleFolder folder(3);
    folder.tensor("model.layers.2." + place + "k_scale", "F32", {}, {0.5f});
    folder.write(kCtTensor);
    const ScaleSet set = read_scales(folder.path());
    ASSERT_EQ(set.scales.size(), 1u) << place;
    EXPECT_EQ(set.scales[0].layer, 2);
    EXPECT_EQ(set.scales[0].values, std::vector<float>{0.5f});
    EXPECT_EQ(set.scales[0].spelling, place + "k_scale");
  }
  ScaleFolder folder(3);
  folder.tensor("model.layers.2.self_attn.kcache_scale", "F32", {}, {0.5f});
  folder.write(kCtTensor);
  const ScaleSet set = read_scales(folder.path());
  EXPECT_TRUE(set.scales.empty());
  ASSERT_EQ(set.unread.size(), 1u);
  EXPECT_EQ(set.unread[0].tensor, "model.layers.2.self_attn.kcache_scale");
}

TEST(ReadScales, Case08MixedShardsInAnyOrder) {
  ScaleFolder folder(2);
  folder.scales("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale");
  fixtures::SafetensorsWriter first, second;
  for (size_t i = 0; i < folder.shard.tensors.size(); ++i) {
    (i % 2 == 0 ? first : second).tensors.push_back(folder.shard.tensors[i]);
  }
  for (const bool reversed : {false, true}) {
    write_file(folder.path() / "config.json", folder.config(fixtures::kProfileB));
    write_file(folder.path() / (reversed ? "b.safetensors" : "a.safetensors"), first.bytes());
    write_file(folder.path() / (reversed ? "a.safetensors" : "b.safetensors"), second.bytes());
    const ScaleSet set = read_scales(folder.path());
    expect_all_scales(set, 2);
    EXPECT_EQ(set.owner_layers, (std::vector<int>{0, 1}));
  }
}

TEST(ReadScales, Case09QueryScalesReturn) {
  for (const std::string name :
       {"self_attn.q_scale", "self_attn.q_proj.q_scale", "self_attn.q.scale"}) {
    ScaleFolder folder(1);
    folder.scales("self_attn.k_scale", "self_attn.v_scale");
    folder.tensor("model.layers.0." + name, "F32", {}, {0.5f});
    folder.write(kCtTensor);
    const ScaleSet set = read_scales(folder.path());
    ASSERT_NE(set.find(0, ScaleSide::kQ), nullptr) << name;
    EXPECT_EQ(set.find(0, ScaleSide::kQ)->values, std::vector<float>{0.5f});
    expect_all_scales(set, 1);
  }
}

TEST(ReadScales, Case27LayersOfAHybridKeepTheirNumbers) {
  ScaleFolder folder(12);
  folder.shard.tensors.clear();
  for (const int layer : {3, 7, 11}) {
    folder.weight(layer);
    folder.tensor(folder.module(layer) + ".k_scale", "F32", {1}, {static_cast<float>(layer)});
    folder.tensor(folder.module(layer) + ".v_scale", "F32", {1}, {0.5f});
  }
  folder.write(kCtTensor);
  const ScaleSet set = read_scales(folder.path());
  EXPECT_EQ(set.owner_layers, (std::vector<int>{3, 7, 11}));
  for (const int layer : {3, 7, 11}) {
    EXPECT_EQ(set.find(layer, ScaleSide::kK)->values,
              std::vector<float>{static_cast<float>(layer)});
  }
  EXPECT_EQ(set.find(4, ScaleSide::kK), nullptr);
}

TEST(ReadScales, Case18SharingLayersReadTheLastOwnerOfTheirKind) {
  ScaleFolder folder(6);
  folder.write(kCtTensor, R"(,"num_kv_shared_layers":2,"layer_types":["sliding_attention",
      "sliding_attention","full_attention","sliding_attention","full_attention","sliding_attention"])");
  const ScaleSet set = read_scales(folder.path());
  EXPECT_EQ(set.cache_layer(4), 2);
  EXPECT_EQ(set.cache_layer(5), 3);
  EXPECT_EQ(set.cache_layer(1), 1);
  EXPECT_EQ(set.owner_layers, (std::vector<int>{0, 1, 2, 3}));
}

TEST(ReadScales, OnlyTheTextModelsOwnLayersCount) {
  ScaleFolder folder(2);
  folder.tensor("vision_tower.layers.0.self_attn.k_scale", "F32", {}, {0.5f});
  folder.tensor("model.layers.2.self_attn.k_scale", "F32", {}, {0.5f});
  folder.tensor("model.layers.0.mlp.up_proj.weight_scale", "F32", {}, {0.5f});
  folder.tensor("model.language_model.layers.1.self_attn.k_scale", "F32", {}, {0.5f});
  folder.write(kCtTensor);
  const ScaleSet set = read_scales(folder.path());
  ASSERT_EQ(set.scales.size(), 1u);
  EXPECT_EQ(set.scales[0].layer, 1);
  EXPECT_EQ(set.unread.size(), 2u);
  EXPECT_EQ(set.files.num_weight_scales, 1u);
}

TEST(ReadScales, MultimodalConfigurationsAndSideFiles) {
  fixtures::ScratchFolder folder;
  write_file(
      folder / "config.json",
      R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"quantization_config":)" +
          std::string(kCtTensor) + "}}");
  fixtures::SafetensorsWriter shard;
  write_file(folder / "model.safetensors", shard.bytes());
  const ScaleSet set = read_scales(folder.path());
  EXPECT_EQ(set.geometry.head_dim, 256);
  EXPECT_TRUE(set.geometry.norm_adds_one);
  EXPECT_EQ(set.declared.family, ScaleFamily::kCompressedTensors);

  ScaleFolder plain;
  plain.write();
  write_file(plain.path() / "hf_quant_config.json",
             R"({"producer":{"name":"modelopt","version":"0.43.0"},
      "quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"FP8","exclude_modules":["lm_head"]}})");
  const ScaleSet nested = read_scales(plain.path());
  EXPECT_EQ(nested.declared.family, ScaleFamily::kModelOpt);
  EXPECT_EQ(nested.declared.version, "0.43.0");
  EXPECT_FALSE(nested.declared.side_is_flat);
}

TEST(ReadScales, PathsThatHoldNothingAreErrors) {
  fixtures::ScratchFolder folder;
  EXPECT_THROW(read_scales(folder.path()), FormatError);
  EXPECT_THROW(read_scales(folder / "absent"), IoError);
  write_file(folder / "x.bin", "x");
  EXPECT_THROW(read_scales(folder / "x.bin"), FormatError);
  write_file(folder / "config.json", "{}");
  write_file(folder / "model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  fixtures::SafetensorsWriter shard;
  write_file(folder / "here.safetensors", shard.bytes());
  EXPECT_THROW(read_scales(folder.path()), FormatError);
}

}  // namespace
}  // namespace kv
