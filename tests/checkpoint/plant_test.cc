#include "checkpoint/plant.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using namespace fixtures;

class Plants : public testing::Test {
 protected:
  PlantRequest request(PlantKind kind) const {
    return {.model = folder_ / "model",
            .out = folder_ / "out",
            .kind = kind,
            .layers = {},
            .side = 'k'};
  }
  std::string refusal(const PlantRequest& request) const {
    try {
      write_plant(request);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(request.out)) << "half-written";
      return error.what();
    }
    return "";
  }
  static std::vector<float> read(const fs::path& model, const std::string& tensor) {
    const auto checkpoint = Checkpoint::open(model);
    const std::vector<int64_t> shape = checkpoint->shape(tensor);
    std::vector<float> out(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
    checkpoint->read_f32(tensor, 0, shape[0], out.data());
    return out;
  }
  /// New over old, which must be one number per row.
  std::vector<float> row_factors(const std::string& tensor) const {
    const std::vector<float> before = read(folder_ / "model", tensor),
                             after = read(folder_ / "out", tensor);
    const auto rows = static_cast<size_t>(Checkpoint::open(folder_ / "out")->shape(tensor)[0]);
    const size_t columns = before.size() / rows;
    std::vector<float> out;
    for (size_t i = 0; i < before.size(); ++i) {
      if (i % columns == 0) out.push_back(after[i] / before[i]);
      EXPECT_EQ(after[i], before[i] * out.back()) << tensor << " " << i;
    }
    return out;
  }

  ScratchFolder folder_;
};

std::vector<float> repeated(std::initializer_list<std::pair<int, float>> runs) {
  std::vector<float> out;
  for (const auto& [count, value] : runs) out.insert(out.end(), static_cast<size_t>(count), value);
  return out;
}

TEST_F(Plants, HeadsAndTheirQueriesGetInverseFactorsBiasesToo) {
  write_hf_model(folder_ / "model", make_tiny_model(tiny_spec("qwen2"), 1));
  PlantRequest asked = request(PlantKind::kHeadDispersion);
  asked.layers = {1};
  write_plant(asked);
  const auto keys = repeated({{8, 1024.0f}, {8, 0x1p-10f}});
  const auto queries = repeated({{16, 0x1p-10f}, {16, 1024.0f}});
  for (const char* part : {"weight", "bias"}) {
    const std::string layer = "model.layers.1.self_attn.";
    EXPECT_EQ(row_factors(layer + "k_proj." + part), keys) << part;
    EXPECT_EQ(row_factors(layer + "q_proj." + part), queries) << part;
  }
  EXPECT_EQ(row_factors("model.layers.0.self_attn.k_proj.weight"), repeated({{16, 1}}));
  EXPECT_EQ(row_factors("model.layers.1.self_attn.v_proj.weight"), repeated({{16, 1}}));
  const auto record = nlohmann::json::parse(read_file(folder_ / "out/kvscale_plant.json"));
  EXPECT_EQ(record["plant"], "head-dispersion");
  EXPECT_EQ(record["layers"], nlohmann::json::array({1}));
  EXPECT_EQ(record["base_model_sha256"], Checkpoint::open(folder_ / "model")->content_sha256());
}

TEST_F(Plants, ClippedValuesAreUndoneInTheOutputProjection) {
  write_hf_model(folder_ / "model", make_tiny_model(tiny_spec(), 2), "F32");
  PlantRequest asked = request(PlantKind::kClipping);
  asked.side = 'v';
  write_plant(asked);
  for (const char* layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    EXPECT_EQ(row_factors(layer + std::string("v_proj.weight")), repeated({{16, 256}}));
    EXPECT_EQ(row_factors(layer + std::string("o_proj.weight")), repeated({{24, 1.0f / 256}}));
    EXPECT_EQ(row_factors(layer + std::string("k_proj.weight")), repeated({{16, 1}}));
  }
}

TEST_F(Plants, FilesWithoutARewriteAreLinkedAndTheModelStaysAsItWas) {
  write_hf_model(folder_ / "model", make_tiny_model(tiny_spec(), 3));
  const std::string before = read_file(folder_ / "model/model.safetensors");
  write_plant(request(PlantKind::kBenign));
  struct stat base, planted;
  ASSERT_EQ(::stat((folder_ / "model/model.safetensors").c_str(), &base), 0);
  ASSERT_EQ(::stat((folder_ / "out/model.safetensors").c_str(), &planted), 0);
  EXPECT_EQ(base.st_ino, planted.st_ino);

  PlantRequest clipping = request(PlantKind::kClipping);
  clipping.out = folder_ / "clipped";
  write_plant(clipping);
  EXPECT_EQ(read_file(folder_ / "model/model.safetensors"), before);
  EXPECT_NE(read_file(folder_ / "clipped/model.safetensors"), before);
}

TEST_F(Plants, AnOffsetIsABiasOnTheChannelsThatHardlyTurn) {
  TinyModel model = make_tiny_model(tiny_spec(), 6);
  write_hf_model(folder_ / "model", model);
  PlantRequest asked = request(PlantKind::kOffset);
  asked.layers = {1};
  asked.size = 100;
  write_plant(asked);
  const auto planted = Checkpoint::open(folder_ / "out");
  EXPECT_TRUE(planted->spec().has_qkv_bias);
  const std::string layer = "model.layers.1.self_attn.";
  // RoPE of 8 channels at theta 10,000 turns the pairs by 1, 0.1, 0.01 and 0.001 radian a position:
  // none by less than 0.1 over 2,048, so the slowest alone is taken, in both KV heads.
  std::vector<float> expected(16);
  expected[3] = expected[11] = 100;
  expected[7] = expected[15] = -100;
  EXPECT_EQ(read(folder_ / "out", layer + "k_proj.bias"), expected);
  for (const char* zero : {"q_proj.bias", "v_proj.bias", "o_proj.bias"}) {
    for (const float x : read(folder_ / "out", layer + zero)) EXPECT_EQ(x, 0) << zero;
  }
  for (const float x : read(folder_ / "out", "model.layers.0.self_attn.k_proj.bias")) {
    EXPECT_EQ(x, 0);
  }
  EXPECT_EQ(row_factors(layer + "k_proj.weight"), repeated({{16, 1}}));
  const auto record = nlohmann::json::parse(read_file(folder_ / "out/kvscale_plant.json"));
  EXPECT_EQ(record["size"], 100);
  EXPECT_EQ(record["expected"], "REJECT_FP8");  // one of two layers is more than a quarter
}

TEST_F(Plants, AnOffsetAsksForAModelWithoutBiases) {
  write_hf_model(folder_ / "model", make_tiny_model(tiny_spec("qwen2"), 7));
  EXPECT_EQ(refusal(request(PlantKind::kOffset)),
            "plant: offset: expected a llama model without biases in one file, found qwen2 with "
            "biases, 1 files");
  PlantRequest too_large = request(PlantKind::kOffset);
  too_large.size = 449;
  EXPECT_EQ(refusal(too_large), "plant: size: expected above 0 and at most 448, found 449");
}

TEST_F(Plants, WhatCannotBeExactIsRefusedByTensor) {
  TinyModel model = make_tiny_model(tiny_spec(), 4);
  for (float& value : model.weights["model.layers.0.self_attn.q_proj.weight"]) value = 0x1p-10f;
  for (float& value : model.weights["model.layers.1.self_attn.q_proj.weight"]) value = 0x1p-16f;
  write_hf_model(folder_ / "model", model, "F16");
  EXPECT_EQ(refusal(request(PlantKind::kClipping)), "");
  fs::remove_all(folder_ / "out");
  model.weights["model.layers.1.self_attn.q_proj.weight"][5] = 0x1.8p-16f;  // half of 2^-24
  write_hf_model(folder_ / "model", model, "F16");
  EXPECT_EQ(refusal(request(PlantKind::kClipping)),
            "model.safetensors: tensor model.layers.1.self_attn.q_proj.weight: a value times 2^-8 "
            "is 8.9407e-08, which F16 does not hold exactly");
}

TEST_F(Plants, RequestsThatDoNotFitTheModel) {
  ModelSpec spec = tiny_spec();
  spec.num_kv_heads = 1;
  write_hf_model(folder_ / "model", make_tiny_model(spec, 5));
  EXPECT_EQ(refusal(request(PlantKind::kHeadDispersion)),
            "plant: head-dispersion: expected at least 2 KV heads, found 1");
  PlantRequest layers = request(PlantKind::kClipping), side = request(PlantKind::kBenign);
  layers.layers = {0, 2};
  side.side = 'v';
  EXPECT_EQ(refusal(layers), "plant: layers: expected 0 to 1, found 2");
  EXPECT_EQ(refusal(side), "plant: side v: benign has none");
  EXPECT_THROW(plant_kind("clip"), ValueError);
}

TEST_F(Plants, WhereAFactorHasNoRowsOrNoEffectItIsRefused) {
  for (const auto& [architecture, expected] :
       {std::pair{"phi3", "plant: model_type phi3: Q, K and V lie in one tensor"},
        {"gemma3_text",
         "plant: model_type gemma3_text: keys pass a norm, which undoes any factor"}}) {
    ModelSpec spec = tiny_spec(architecture);
    add_family_parts(spec, 12, 0);
    write_hf_model(folder_ / "model", make_tiny_model(spec, 1));
    EXPECT_EQ(refusal(request(PlantKind::kClipping)), expected);
  }
}

}  // namespace
}  // namespace kv
