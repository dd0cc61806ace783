// Forms that are no Hugging Face directory: what is written is what is read back, and what stood
// beside it still stands there.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors_file.h"
#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/export_checkpoint.h"
#include "checkpoint/scales/export_scales.h"
#include "kvscale/error.h"
#include "tests/checkpoint/scales/onnx_writer.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

std::vector<ExportedScale> scales_of_layers(int layers, float k, float v) {
  std::vector<ExportedScale> out;
  for (int layer = 0; layer < layers; ++layer) {
    const float factor = static_cast<float>(layer + 1);
    out.push_back({layer, 'k', {k * factor}, {k * factor}});
    out.push_back({layer, 'v', {v * factor}, {v * factor}});
  }
  return out;
}

/// Why an export is refused; fails the test when it is not.
std::string refusal(const ExportRequest& request) {
  try {
    export_checkpoint(request);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "was written";
  return "";
}

class FormTest : public testing::Test {
 protected:
  fs::path model() const { return folder_ / "model"; }
  fs::path out() const { return folder_ / "out"; }

  ExportRequest request(ExportForm form, std::vector<ExportedScale> scales) const {
    ExportRequest r;
    r.model = model();
    r.out = out();
    r.form = form;
    r.record.form = name(form);
    r.record.target = form == ExportForm::kEdgeOnnx ? "edge-llm:plugin" : "tensorrt-llm-legacy";
    r.record.layout = "fp8_tensor";
    r.record.k_stage = "post_rope";
    r.record.scales = std::move(scales);
    r.card = "## FP8 KV cache\n";
    return r;
  }

  /// Nothing beside the model: no half-written folder, hidden or not.
  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_EQ(entry.path().filename(), "model");
    }
  }

  fixtures::ScratchFolder folder_;
};


constexpr const char* kLegacyConfig =
    R"({"architecture":"LlamaForCausalLM","dtype":"bfloat16","num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"head_size":64,"use_fused_mlp":true,
        "quantization":{"quant_algo":null,"kv_cache_quant_algo":null,"exclude_modules":["lm_head"]}})";

class LegacyForm : public FormTest {
 protected:
  void SetUp() override {
    fs::create_directory(model());
    fixtures::write_file(model() / "config.json", kLegacyConfig);
    fixtures::write_file(model() / "rank0.safetensors", shard(0).bytes());
    fixtures::write_file(model() / "rank1.safetensors", shard(1).bytes());
  }

  static fixtures::SafetensorsWriter shard(int rank) {
    fixtures::SafetensorsWriter out;
    for (int layer = 0; layer < 2; ++layer) {
      out.tensors.push_back(
          {"transformer.layers." + std::to_string(layer) + ".attention.qkv.weight",
           "BF16",
           {3},
           fixtures::encoded({1.0f, static_cast<float>(rank), static_cast<float>(layer)}, "BF16")});
    }
    return out;
  }
};

TEST_F(LegacyForm, EveryRankGetsOneNumberForKAndV) {
  auto scales = scales_of_layers(2, 0.5f, 0.25f);
  for (ExportedScale& scale : scales) scale.used = {0.5f * static_cast<float>(scale.layer + 1)};
  export_checkpoint(request(ExportForm::kTensorRtLlmLegacy, scales));
  const ScaleSet set = read_scales(out());
  EXPECT_EQ(set.declared.family, ScaleFamily::kTensorRtLlm);
  EXPECT_TRUE(set.declared.has_kv && set.declared.is_fp8);
  EXPECT_EQ(set.record->scales, scales);
  for (int rank = 0; rank < 2; ++rank) {
    for (const ScaleSide side : {ScaleSide::kK, ScaleSide::kV}) {
      const StoredScale* found = set.find(1, side, rank);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->rank, rank);
      EXPECT_EQ(found->values, std::vector<float>{1.0f});
      EXPECT_EQ(found->shape, std::vector<int64_t>{1});
      EXPECT_EQ(found->dtype, "F32");
      EXPECT_EQ(found->tensor, "transformer.layers.1.attention.kv_cache_scaling_factor");
      EXPECT_TRUE(found->is_shared);
    }
  }
  EXPECT_NE(diagnose(set).health(), "broken");
  EXPECT_TRUE(std::ranges::all_of(diagnose(set).warnings, [](const ScaleWarning& w) {
    return w.id == "k-only";
  })) << "the shared number is told";
}

TEST_F(LegacyForm, WeightsAndTheRestOfTheConfigurationStay) {
  auto scales = scales_of_layers(2, 0.5f, 0.5f);
  export_checkpoint(request(ExportForm::kTensorRtLlmLegacy, scales));
  for (const std::string file : {"rank0.safetensors", "rank1.safetensors"}) {
    const SafetensorsFile before(model() / file), after(out() / file);
    ASSERT_EQ(after.tensors().size(), before.tensors().size() + 2);
    for (size_t i = 0; i < before.tensors().size(); ++i) {
      EXPECT_EQ(after.tensors()[i].name, before.tensors()[i].name);
      EXPECT_EQ(after.tensors()[i].shape, before.tensors()[i].shape);
      EXPECT_TRUE(std::ranges::equal(after.tensors()[i].bytes, before.tensors()[i].bytes));
    }
  }
  auto config = nlohmann::json::parse(fixtures::read_file(out() / "config.json"));
  EXPECT_EQ(config["quantization"]["kv_cache_quant_algo"], "FP8");
  config["quantization"]["kv_cache_quant_algo"] = nullptr;
  EXPECT_EQ(config, nlohmann::json::parse(kLegacyConfig));
  EXPECT_EQ(fixtures::read_file(model() / "rank0.safetensors"), shard(0).bytes());
  EXPECT_EQ(fixtures::read_file(model() / "config.json"), kLegacyConfig);
}

TEST_F(LegacyForm, ScaleOneIsWrittenOut) {
  export_checkpoint(request(ExportForm::kTensorRtLlmLegacy, {}));
  EXPECT_EQ(read_scales(out()).find(0, ScaleSide::kV, 1)->values, std::vector<float>{1.0f});
}

TEST_F(LegacyForm, RefusesTwoNumbersMissingLayersAndOtherModels) {
  EXPECT_NE(refusal(request(ExportForm::kTensorRtLlmLegacy, scales_of_layers(2, 0.5f, 0.25f)))
                .find("layer 0: expected one scale, the same for K and V"),
            std::string::npos);
  EXPECT_NE(refusal(request(ExportForm::kTensorRtLlmLegacy, scales_of_layers(1, 0.5f, 0.5f)))
                .find("layer 1"),
            std::string::npos);
  expect_nothing_left();
  const fixtures::ScaleFolder hugging_face(2);
  hugging_face.write();
  ExportRequest r = request(ExportForm::kTensorRtLlmLegacy, scales_of_layers(2, 0.5f, 0.5f));
  r.model = hugging_face.path();
  EXPECT_NE(refusal(r).find("rank*.safetensors"), std::string::npos);
  r = request(ExportForm::kCompressedTensors, scales_of_layers(2, 0.5f, 0.5f));
  EXPECT_NE(refusal(r), "") << "the other way round";
  expect_nothing_left();
}

// Newer releases write K's and V's scale and, for older readers, the larger of both.
TEST_F(LegacyForm, TheLargerOfBothBesideTheTwoIsNoConflict) {
  const auto write = [&](float k, float v, float both) {
    fixtures::SafetensorsWriter file = shard(0);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = "transformer.layers." + std::to_string(layer) + ".attention.";
      file.tensors.push_back(
          {prefix + "k_cache_scaling_factor", "F32", {1}, fixtures::encoded({k}, "F32")});
      file.tensors.push_back(
          {prefix + "v_cache_scaling_factor", "F32", {1}, fixtures::encoded({v}, "F32")});
      file.tensors.push_back(
          {prefix + "kv_cache_scaling_factor", "F32", {1}, fixtures::encoded({both}, "F32")});
    }
    fixtures::write_file(model() / "rank0.safetensors", file.bytes());
    fixtures::write_file(model() / "config.json",
                         fixtures::replaced(kLegacyConfig, "\"kv_cache_quant_algo\":null",
                                            "\"kv_cache_quant_algo\":\"FP8\""));
    fs::remove(model() / "rank1.safetensors");
    return read_scales(model());
  };
  const ScaleSet set = write(1.5f, 2.5f, 2.5f);
  EXPECT_EQ(set.find(0, ScaleSide::kK)->values, std::vector<float>{1.5f});
  EXPECT_EQ(set.find(0, ScaleSide::kV)->values, std::vector<float>{2.5f});
  const auto is_conflict = [](const ScaleWarning& w) { return w.id == "conflict"; };
  EXPECT_TRUE(std::ranges::none_of(diagnose(set).warnings, is_conflict));
  EXPECT_TRUE(std::ranges::any_of(diagnose(write(1.5f, 2.5f, 2.0f)).warnings, is_conflict))
      << "smaller than V's";
}


std::string fixed32(float value) {
  return fixtures::varint(7 << 3 | 5) + fixtures::floats({value});
}

/// An attention node as ONNX's own writers lay it out: floats one by one, not packed.
std::string unpacked_node(const std::string& name, const std::vector<float>& qkv) {
  std::string attribute = fixtures::bytes_field(1, "qkv_scales");
  for (const float value : qkv) attribute += fixed32(value);
  return fixtures::bytes_field(
      1, fixtures::bytes_field(3, name) + fixtures::bytes_field(5, attribute));
}

class EdgeForm : public FormTest {
 protected:
  void SetUp() override { fs::create_directory(model()); }
  void write(const std::string& graph) const {
    fixtures::write_file(model() / "model.onnx", graph);
    fixtures::write_file(model() / "model.onnx.data", "weights");
    fixtures::write_file(model() / "config.json", R"({"model_type":"llama"})");
  }
};

TEST_F(EdgeForm, GraphsOfBothAgesGetTheNumbersWhereTheyStand) {
  const std::string packed =
      fixtures::onnx_model({fixtures::onnx_node("layers.0/attn", {"q"}, {1.0f, 1.0f, 1.0f}),
                            fixtures::onnx_node("layers.1/attn", {"q"}, {3.0f, 1.0f, 1.0f})});
  const std::string unpacked =
      fixtures::onnx_model({unpacked_node("layers.0/attn", {1.0f, 1.0f, 1.0f}),
                            unpacked_node("layers.1/attn", {3.0f, 1.0f, 1.0f})});
  const std::string old = fixtures::onnx_model(
      {fixtures::onnx_tensor("l0.k_v_scale_quant_orig", {1.0f, 1.0f}),
       fixtures::onnx_tensor("l1.k_v_scale_quant_orig", {1.0f, 1.0f}),
       fixtures::onnx_node("layers.0/attn", {"q", "l0.k_v_scale_quant_orig"}, {}),
       fixtures::onnx_node("layers.1/attn", {"q", "l1.k_v_scale_quant_orig"}, {})});
  for (const std::string& graph : {packed, unpacked, old}) {
    write(graph);
    const auto scales = scales_of_layers(2, 0.03f, 0.01f);
    export_checkpoint(request(ExportForm::kEdgeOnnx, scales));
    const ScaleSet set = read_scales(out());
    EXPECT_EQ(set.record->scales, scales);
    for (const ExportedScale& scale : scales) {
      const StoredScale* found =
          set.find(scale.layer, scale.side == 'k' ? ScaleSide::kK : ScaleSide::kV);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->values, scale.used);
    }
    if (const StoredScale* q = set.find(1, ScaleSide::kQ)) {
      EXPECT_EQ(q->values[0], 3.0f) << "Q's stays";
    }
    const std::string after = fixtures::read_file(out() / "model.onnx");
    ASSERT_EQ(after.size(), graph.size());
    size_t changed = 0;
    for (size_t i = 0; i < graph.size(); ++i) changed += after[i] != graph[i] ? 1 : 0;
    EXPECT_LE(changed, 4u * 4) << "four numbers";
    EXPECT_EQ(fixtures::read_file(out() / "model.onnx.data"), "weights");
    EXPECT_TRUE(fs::exists(out() / "config.json"));
    EXPECT_EQ(fixtures::read_file(model() / "model.onnx"), graph);
    fs::remove_all(out());
  }
}

TEST_F(EdgeForm, RefusesGraphsThatDoNotFit) {
  const std::string one = fixtures::onnx_node("layers.0/attn", {"q"}, {1.0f, 1.0f, 1.0f});
  const auto why = [&](const std::string& graph, int layers) {
    write(graph);
    const std::string text =
        refusal(request(ExportForm::kEdgeOnnx, scales_of_layers(layers, 0.5f, 0.5f)));
    expect_nothing_left();
    return text;
  };
  EXPECT_NE(why(fixtures::onnx_model({fixtures::onnx_node("layers.0/attn", {"q"}, {})}), 1)
                .find("FP8 KV cache"),
            std::string::npos);
  EXPECT_NE(why(fixtures::onnx_model({one}), 2).find("layer 1"), std::string::npos);
  EXPECT_NE(why(fixtures::onnx_model({one}), 0).find("layer 0 k"), std::string::npos);
  EXPECT_NE(why(fixtures::onnx_model({one, one}), 1).find("second attention node"),
            std::string::npos);
}

}  // namespace
}  // namespace kv
