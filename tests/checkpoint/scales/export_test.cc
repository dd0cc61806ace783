// What is written is what is read back, bit for bit, and the model beside it is untouched.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/export_checkpoint.h"
#include "checkpoint/scales/export_scales.h"
#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using fixtures::ScaleFolder;

ScaleSet given_scales(bool per_head, float k = 0.03f, float v = 0.01f) {
  ScaleSet set;
  set.path = "given";
  set.geometry.num_layers = 2;
  set.geometry.num_kv_heads = 2;
  set.geometry.num_q_heads = 4;
  set.owner_layers = {0, 1};
  for (const int layer : set.owner_layers) {
    for (const ScaleSide side : {ScaleSide::kK, ScaleSide::kV}) {
      StoredScale scale;
      scale.layer = layer;
      scale.side = side;
      const float value = (side == ScaleSide::kK ? k : v) * static_cast<float>(layer + 1);
      scale.values = per_head ? std::vector<float>{value, value * 0.5f} : std::vector<float>{value};
      set.scales.push_back(scale);
    }
  }
  return set;
}

/// A whole model of two layers and 2 KV heads, and where its exports go.
class ExportTest : public testing::Test {
 protected:
  void SetUp() override {
    fixtures::write_hf_model(model(), fixtures::make_tiny_model(fixtures::tiny_spec(), 1));
    fixtures::write_file(model() / "tokenizer.json", "{}");
    fixtures::write_file(model() / "README.md", "# Tiny\n");
  }
  fs::path model() const { return folder_ / "model"; }
  fs::path out() const { return folder_ / "out"; }

  ExportRequest request(ExportForm form, const ScaleSet& scales, const ScaleChoice& choice) const {
    ExportRequest r;
    r.model = model();
    r.out = out();
    r.form = form;
    r.record.form = name(form);
    r.record.target = "vllm:flash_attn3";
    r.record.layout = choice.per_head ? "fp8_head" : "fp8_tensor";
    r.record.k_stage = "post_rope";
    r.record.scales = scales_for_export(scales, choice);
    r.card = "## FP8 KV cache\n";
    return r;
  }
  void expect_read_back(const ExportRecord& record) const {
    const ScaleSet set = read_scales(out());
    ASSERT_TRUE(set.record.has_value());
    EXPECT_EQ(set.record->scales, record.scales);
    for (const ExportedScale& scale : record.scales) {
      const StoredScale* found =
          set.find(scale.layer, scale.side == 'k' ? ScaleSide::kK : ScaleSide::kV);
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->values.size(), scale.used.size());
      for (size_t i = 0; i < scale.used.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(found->values[i]),
                  std::bit_cast<uint32_t>(scale.used[i]));
      }
    }
    if (record.form != "sglang-json") {
      EXPECT_EQ(diagnose(set).health(), "healthy") << diagnose(set).warnings.size();
    }
  }

  fixtures::ScratchFolder folder_;
};

TEST_F(ExportTest, Case33EveryFormReturnsTheBitsThatCame) {
  for (const bool exact : {false, true}) {
    for (const auto& [form, per_head] :
         std::vector<std::pair<ExportForm, bool>>{{ExportForm::kCompressedTensors, false},
                                                  {ExportForm::kCompressedTensors, true},
                                                  {ExportForm::kModelOpt, false},
                                                  {ExportForm::kSglangJson, false}}) {
      ScaleChoice choice;
      choice.per_head = per_head;
      choice.exact = exact;
      choice.is_shared = form == ExportForm::kSglangJson;
      const ExportRequest r = request(form, given_scales(per_head), choice);
      SCOPED_TRACE(std::string(name(form)) + (exact ? " exact" : " rounded"));
      const float used = r.record.scales[0].used[0];
      EXPECT_EQ(used, exact ? 0.03f : bf16::round_up(0.03f));
      EXPECT_EQ(r.record.scales[0].raw[0], 0.03f);
      export_checkpoint(r);
      expect_read_back(r.record);
      fs::remove_all(out());
    }
  }
}

TEST_F(ExportTest, WeightsAreTheSameFileUnderAFirstShardsName) {
  export_checkpoint(request(ExportForm::kCompressedTensors, given_scales(false), {}));
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat((model() / "model.safetensors").c_str(), &before), 0);
  ASSERT_EQ(::stat((out() / "model-00001-of-00002.safetensors").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "a hard link";
  EXPECT_FALSE(fs::exists(out() / "model.safetensors")) << "transformers would read it alone";
  EXPECT_TRUE(fs::exists(out() / "tokenizer.json"));
  EXPECT_EQ(fixtures::read_file(out() / "README.md"), "# Tiny\n\n## FP8 KV cache\n");
  EXPECT_EQ(fixtures::read_file(model() / "README.md"), "# Tiny\n");
  EXPECT_EQ(fixtures::read_file(model() / "config.json").find("quantization_config"),
            std::string::npos);
  const auto index =
      nlohmann::json::parse(fixtures::read_file(out() / "model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"]["model.layers.1.self_attn.v_scale"],
            "model-00002-of-00002.safetensors");
  EXPECT_EQ(index["weight_map"]["model.norm.weight"], "model-00001-of-00002.safetensors");
  EXPECT_EQ(Checkpoint::open(out())->content_sha256(), Checkpoint::open(model())->content_sha256());
}

TEST_F(ExportTest, ShardsKeepTheirNamesAndStrayFilesStayOut) {
  fs::rename(model() / "model.safetensors", model() / "model-00001-of-00001.safetensors");
  fixtures::SafetensorsWriter stray;
  stray.tensors = {{"model.norm.weight", "BF16", {1}, fixtures::encoded({9}, "BF16")}};
  fixtures::write_file(model() / "old.safetensors", stray.bytes());
  std::string map;
  for (const auto& tensor :
       fixtures::hf_weights(fixtures::make_tiny_model(fixtures::tiny_spec(), 1)).tensors) {
    map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"model-00001-of-00001.safetensors\"";
  }
  fixtures::write_file(model() / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const ExportRequest r = request(ExportForm::kCompressedTensors, given_scales(false), {});
  export_checkpoint(r);
  expect_read_back(r.record);
  EXPECT_TRUE(fs::exists(out() / "model-00001-of-00001.safetensors"));
  EXPECT_TRUE(fs::exists(out() / "model-kv-scales.safetensors"));
  EXPECT_FALSE(fs::exists(out() / "old.safetensors")) << "no index named it";
  EXPECT_EQ(Checkpoint::open(out())->content_sha256(), Checkpoint::open(model())->content_sha256());
}

TEST_F(ExportTest, ProfileBOpensAsTheSameModel) {
  export_checkpoint(request(ExportForm::kModelOpt, given_scales(false), {}));
  EXPECT_EQ(Checkpoint::open(out())->content_sha256(), Checkpoint::open(model())->content_sha256());
  const auto config = nlohmann::json::parse(fixtures::read_file(out() / "config.json"));
  EXPECT_EQ(config["quantization_config"]["producer"]["name"], "kvscale")
      << "honest about the tool";
  const auto side = nlohmann::json::parse(fixtures::read_file(out() / "hf_quant_config.json"));
  EXPECT_TRUE(side["quantization"]["quant_algo"].is_null());
  EXPECT_EQ(side["quantization"]["kv_cache_quant_algo"], "FP8");
}

TEST_F(ExportTest, Case14KAndVKeepTheirOwnScales) {
  const ExportRequest r =
      request(ExportForm::kCompressedTensors, given_scales(false, 0.5f, 0.0078125f), {});
  export_checkpoint(r);
  const ScaleSet set = read_scales(out());
  EXPECT_EQ(set.find(0, ScaleSide::kK)->values[0] / set.find(0, ScaleSide::kV)->values[0], 64.0f);
}

TEST_F(ExportTest, Case20PerTensorOfPerHeadOnlyByTheMaximum) {
  ScaleChoice choice;
  EXPECT_THROW(scales_for_export(given_scales(true), choice), ValueError);
  choice.reduce_max = choice.exact = true;
  EXPECT_EQ(scales_for_export(given_scales(true), choice)[0].used, std::vector<float>{0.03f});
  choice.per_head = true;
  EXPECT_THROW(scales_for_export(given_scales(false), choice), ValueError);
}

TEST_F(ExportTest, Case32LiftedScalesKeepTheirRawValue) {
  ScaleChoice choice;
  choice.min_scale = 1;
  const auto scales = scales_for_export(given_scales(false, 0.125f), choice);
  EXPECT_EQ(scales[0].raw, std::vector<float>{0.125f});
  EXPECT_EQ(scales[0].used, std::vector<float>{1.0f});
  choice.min_scale = 0;
  EXPECT_EQ(scales_for_export(given_scales(false, 0.125f), choice)[0].used,
            std::vector<float>{0.125f})
      << "not 1";
}

TEST_F(ExportTest, Case07AndCase26UnusableScalesAreRefused) {
  for (const float value : {0.0f, -1.0f, NAN, INFINITY, 1e-45f, 2e4f}) {
    try {
      scales_for_export(given_scales(false, value), {});
      FAIL() << value;
    } catch (const ValueError& error) {
      EXPECT_NE(std::string(error.what()).find("layer 0 side k"), std::string::npos)
          << error.what();
    }
  }
  ScaleSet half = given_scales(false);
  half.scales.pop_back();
  try {
    scales_for_export(half, {});
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("layer 1 side v"), std::string::npos) << error.what();
  }
}

TEST_F(ExportTest, ModelsThatCannotCarryThemAreRefusedAndNothingIsLeft) {
  ScaleFolder scaled(2);
  scaled.scales("self_attn.k_scale", "self_attn.v_scale");
  scaled.write(fixtures::kCtTensor);
  ExportRequest r = request(ExportForm::kCompressedTensors, given_scales(false), {});
  r.model = scaled.path();
  EXPECT_THROW(export_checkpoint(r), ValueError) << "scales of two kinds in one directory";
  ScaleFolder gptq(2);
  gptq.write(R"({"quant_method":"gptq","bits":4})");
  r.model = gptq.path();
  EXPECT_THROW(export_checkpoint(r), ValueError);
  ScaleFolder latent(2);
  latent.write("", R"(,"kv_lora_rank":512)");
  r.model = latent.path();
  EXPECT_THROW(export_checkpoint(r), ValueError);
  r.model = model();
  r.form = ExportForm::kModelOpt;
  r.record.scales[0].used = {0.5f, 0.25f};
  EXPECT_THROW(export_checkpoint(r), ValueError) << "per head in a form without heads";
  size_t left = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_.path())) ++left;
  EXPECT_EQ(left, 1u) << "only the model";
  fs::create_directory(out());
  r = request(ExportForm::kModelOpt, given_scales(false), {});
  EXPECT_THROW(export_checkpoint(r), ValueError) << "never into a folder that exists";
}

TEST_F(ExportTest, WeightsThatAreQuantizedKeepTheirMethod) {
  ScaleFolder weights(2);
  weights.write(
      R"({"quant_method":"compressed-tensors","version":"0.18.0","config_groups":{"group_0":
      {"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}},
      "kv_cache_scheme":null})");
  ExportRequest r = request(ExportForm::kCompressedTensors, given_scales(false), {});
  r.model = weights.path();
  export_checkpoint(r);
  const ScaleSet set = read_scales(out());
  EXPECT_EQ(set.declared.weights, WeightScheme::kPerChannel);
  EXPECT_TRUE(set.declared.has_kv);
  expect_read_back(r.record);
}

TEST_F(ExportTest, AChangedModelMakesTheScalesStale) {
  export_checkpoint(request(ExportForm::kCompressedTensors, given_scales(false), {}));
  const auto shard = out() / "model-00001-of-00002.safetensors";
  fs::remove(shard);
  fixtures::SafetensorsWriter other =
      fixtures::hf_weights(fixtures::make_tiny_model(fixtures::tiny_spec(), 2));
  other.tensors[0].data.resize(other.tensors[0].data.size() / 2);
  other.tensors[0].shape[0] /= 2;
  fixtures::write_file(shard, other.bytes());
  const Diagnosis d = diagnose(read_scales(out()));
  const auto stale = std::ranges::find(d.warnings, "stale", &ScaleWarning::id);
  ASSERT_NE(stale, d.warnings.end());
  EXPECT_EQ(stale->where, "model-00001-of-00002.safetensors");
  EXPECT_EQ(d.health(), "broken");
}

TEST_F(ExportTest, AChangedRotationIsToldFromTheRecord) {
  export_checkpoint(request(ExportForm::kCompressedTensors, given_scales(false), {}));
  std::string config = fixtures::read_file(out() / "config.json");
  config = fixtures::replaced(config, "\"rope_theta\"",
                              R"("rope_scaling": {"rope_type":"yarn","factor":4.0}, "rope_theta")");
  fs::remove(out() / "config.json");
  fixtures::write_file(out() / "config.json", config);
  const Diagnosis d = diagnose(read_scales(out()));
  EXPECT_NE(std::ranges::find(d.warnings, "rope-change", &ScaleWarning::id), d.warnings.end());
}

TEST(ExportRecordText, ReturnsAndRefusesWhatIsBroken) {
  fixtures::ScratchFolder folder;
  ExportRecord record;
  record.tool_version = "0.1.0";
  record.scales = {{3, 'v', {0.03f}, {0.03125f}}};
  record.bf16_layers = {0, 1};
  record.launch = {"vllm", "serve"};
  record.shards = {{"a.safetensors", 10, "ab"}};
  const std::string text = export_record_text(record);
  fixtures::write_file(folder / kExportRecordFile, text);
  EXPECT_EQ(read_export_record(folder.path()), record);
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"kvscale-export", "other"},
                                                        {"\"schema\": 1", "\"schema\": 2"},
                                                        {"3d000000", "3d0000"},
                                                        {"\"side\": \"v\"", "\"side\": \"x\""},
                                                        {"\"bytes\": 10", "\"bytes\": -10"}}) {
    fixtures::write_file(folder / kExportRecordFile, fixtures::replaced(text, from, to));
    EXPECT_THROW(read_export_record(folder.path()), FormatError) << to;
  }
}

}  // namespace
}  // namespace kv
