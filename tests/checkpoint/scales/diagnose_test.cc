// Every finding, on the smallest directory that has it, and none where nothing is wrong.

#include "checkpoint/scales/diagnose.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

using fixtures::kCtTensor;
using fixtures::kProfileB;
using fixtures::replaced;
using fixtures::ScaleFolder;

Diagnosis diagnosis_of(const ScaleFolder& folder) { return diagnose(read_scales(folder.path())); }

const ScaleWarning* find(const Diagnosis& diagnosis, const std::string& id) {
  const auto found = std::ranges::find(diagnosis.warnings, id, &ScaleWarning::id);
  return found == diagnosis.warnings.end() ? nullptr : &*found;
}

std::string ids(const Diagnosis& diagnosis) {
  std::string text;
  for (const ScaleWarning& w : diagnosis.warnings) text += w.id + " (" + w.where + ") ";
  return text;
}

/// compressed-tensors scales of four layers, healthy until a test changes them.
ScaleFolder healthy() {
  ScaleFolder folder;
  folder.scales("self_attn.k_scale", "self_attn.v_scale");
  return folder;
}

void set_k(ScaleFolder& folder, int layer, float value, const std::string& dtype = "F32") {
  folder.erase(folder.module(layer) + ".k_scale");
  folder.tensor(folder.module(layer) + ".k_scale", dtype, {1}, {value});
}

void expect_only(const ScaleFolder& folder, const std::string& id, std::string_view health) {
  const Diagnosis d = diagnosis_of(folder);
  EXPECT_NE(find(d, id), nullptr) << id << " is missing: " << ids(d);
  for (const ScaleWarning& w : d.warnings) EXPECT_EQ(w.id, id) << ids(d);
  EXPECT_EQ(d.health(), health) << id;
}

TEST(Diagnose, HealthyScalesHaveNoFinding) {
  ScaleFolder folder = healthy();
  folder.write(kCtTensor);
  const Diagnosis d = diagnosis_of(folder);
  EXPECT_TRUE(d.warnings.empty()) << ids(d);
  EXPECT_EQ(d.health(), "healthy");
  ScaleFolder nothing;
  nothing.write();
  EXPECT_EQ(diagnosis_of(nothing).health(), "healthy");
}

TEST(Diagnose, Case04PresenceIsToldApartFromValue) {
  ScaleFolder all = healthy();
  all.write(kCtTensor);
  EXPECT_EQ(diagnosis_of(all).summary, "all 4 layers from checkpoint");

  ScaleFolder half = healthy();
  for (const int layer : {1, 3}) {
    half.erase(half.module(layer) + ".k_scale");
    half.erase(half.module(layer) + ".v_scale");
  }
  half.write(kCtTensor);
  EXPECT_EQ(diagnosis_of(half).summary, "2 of 4 layers from checkpoint, layers 1,3 default");

  ScaleFolder none;
  none.write();
  EXPECT_EQ(diagnosis_of(none).summary, "none of 4 layers has KV scales");

  ScaleFolder ones;
  for (int layer = 0; layer < 4; ++layer) {
    ones.tensor(ones.module(layer) + ".k_scale", "F32", {1}, {1});
    ones.tensor(ones.module(layer) + ".v_scale", "F32", {1}, {1});
  }
  ones.write(kCtTensor);
  EXPECT_EQ(diagnosis_of(ones).summary, "all 4 layers from checkpoint, value 1.0");
  expect_only(ones, "all-ones", "doubtful");
}

TEST(Diagnose, Case05DeclaredWithoutTensorsAndTensorsWithoutDeclaration) {
  ScaleFolder declared;
  declared.write(kCtTensor);
  expect_only(declared, "declared-missing", "broken");
  EXPECT_NE(find(diagnosis_of(declared), "declared-missing")->text.find("declared, 0 of 8 tensors"),
            std::string::npos);
  ScaleFolder stray = healthy();
  stray.write();
  expect_only(stray, "undeclared", "broken");
  EXPECT_NE(find(diagnosis_of(stray), "undeclared")->text.find("8 tensors, nothing declared"),
            std::string::npos);
}

TEST(Diagnose, Case07AndCase26UnusableNumbersAreBrokenWithTheirPlace) {
  for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), 1e-45f}) {
    ScaleFolder folder = healthy();
    set_k(folder, 2, value);
    folder.write(kCtTensor);
    expect_only(folder, "zero", "broken");
    const Diagnosis d = diagnosis_of(folder);
    const ScaleWarning* w = find(d, "zero");
    EXPECT_EQ(w->where, "layer 2 k") << value;
    EXPECT_NE(w->text.find("model.layers.2.self_attn.k_scale"), std::string::npos);
  }
  for (const float value : {2e4f, 1e9f, 1e-6f}) {
    ScaleFolder folder = healthy();
    set_k(folder, 2, value);
    folder.write(kCtTensor);
    expect_only(folder, "outlier-scale", "broken");
  }
}

TEST(Diagnose, ObserversByNameAndByTheReleaseThatWroteThem) {
  const std::string named = std::string(kCtTensor);
  const std::string absent = replaced(named, ",\"observer\":\"static_minmax\"", "");
  const auto with = [&](const std::string& observer) {
    return replaced(named, "static_minmax", observer);
  };
  const auto released = [&](const std::string& version) {
    return replaced(absent, "0.18.0", version);
  };
  for (const auto& [block, id] :
       std::vector<std::pair<std::string, std::string>>{{with("memoryless_minmax"), "one-sample"},
                                                        {with("memoryless_mse"), "one-sample"},
                                                        {with("minmax"), "ema"},
                                                        {with("mse"), "ema"},
                                                        {released("0.13.0"), "ema"},
                                                        {released("0.14.0"), "one-sample"},
                                                        {released("0.18.2"), "one-sample"},
                                                        {released("0.19.0"), "ema"},
                                                        {released("0.20.1"), "ema"}}) {
    ScaleFolder folder = healthy();
    folder.write(block);
    SCOPED_TRACE(block);
    expect_only(folder, id, "doubtful");
  }
}

TEST(Diagnose, KeysMeasuredBeforeRope) {
  ScaleFolder old;
  old.scales("self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale");
  old.write(kCtTensor);
  expect_only(old, "pre-rope", "doubtful");
  ScaleFolder fp8 = healthy();
  fp8.write(R"({"quant_method":"fp8","activation_scheme":"static","kv_cache_scheme":"static"})");
  const Diagnosis d = diagnosis_of(fp8);
  EXPECT_TRUE(find(d, "pre-rope") != nullptr && find(d, "padding") != nullptr) << ids(d);
  const std::string quark = R"({"quant_method":"quark","kv_cache_post_rope":false,
      "kv_cache_quant_config":{"*k_proj":{"output_tensors":{"dtype":"fp8_e4m3"}}}})";
  old.write(quark);
  expect_only(old, "pre-rope", "doubtful");
  old.write(replaced(quark, "\"kv_cache_post_rope\":false", "\"kv_cache_post_rope\":true"));
  EXPECT_EQ(diagnosis_of(old).health(), "healthy") << ids(diagnosis_of(old));
}

TEST(Diagnose, ClampedAndSharedNumbers) {
  ScaleFolder clamped = healthy();
  for (int layer = 0; layer < 4; ++layer) {
    clamped.erase(clamped.module(layer) + ".v_scale");
    clamped.tensor(clamped.module(layer) + ".v_scale", "F32", {1}, {1});
    set_k(clamped, layer, 1.0f + 0.5f * static_cast<float>(layer));
  }
  clamped.write(kProfileB);
  expect_only(clamped, "clamped", "doubtful");

  ScaleFolder equal;
  equal.scales("self_attn.k_scale", "self_attn.unused");
  for (int layer = 0; layer < 4; ++layer) {
    equal.erase(equal.module(layer) + ".unused");
    equal.tensor(equal.module(layer) + ".v_scale", "F32", {1}, {ScaleFolder::k_scale(layer)});
  }
  equal.write(kCtTensor);
  expect_only(equal, "k-only", "doubtful");
}

TEST(Diagnose, Case32ASmallScaleIsNoFinding) {
  ScaleFolder folder = healthy();
  set_k(folder, 0, 0.125f);  // K amax 56
  folder.write(kProfileB);
  EXPECT_EQ(diagnosis_of(folder).health(), "healthy");
}

TEST(Diagnose, EpsOfEachDtype) {
  for (const auto& [dtype, eps] :
       std::vector<std::pair<std::string, float>>{{"BF16", 0x1p-7f}, {"F16", 0x1p-10f}}) {
    ScaleFolder folder = healthy();
    set_k(folder, 1, eps, dtype);
    folder.write(kCtTensor);
    expect_only(folder, "eps", "doubtful");
  }
}

TEST(Diagnose, MissingLayersAndSides) {
  ScaleFolder side = healthy();
  side.erase(side.module(3) + ".v_scale");
  side.write(kCtTensor);
  expect_only(side, "missing-side", "broken");
  EXPECT_EQ(find(diagnosis_of(side), "missing-side")->where, "layer 3 v");
  side.erase(side.module(3) + ".k_scale");
  side.write(kCtTensor);
  expect_only(side, "missing-layer", "broken");
  EXPECT_EQ(find(diagnosis_of(side), "missing-layer")->where, "layer 3 k and v");
}

TEST(Diagnose, Case18SharingLayersNeedNoScales) {
  ScaleFolder folder(4);
  for (const int layer : {0, 1}) {
    folder.tensor(folder.module(layer) + ".k_scale", "F32", {1}, {0.5f});
    folder.tensor(folder.module(layer) + ".v_scale", "F32", {1}, {0.25f});
  }
  folder.write(kCtTensor, R"(,"num_kv_shared_layers":2)");
  EXPECT_EQ(diagnosis_of(folder).health(), "healthy") << ids(diagnosis_of(folder));
}

TEST(Diagnose, ShapesThatNoEngineTakes) {
  const auto k_of_shape = [](const std::vector<int64_t>& shape, std::string_view block) {
    ScaleFolder folder(1);
    folder.tensor(folder.module(0) + ".k_scale", "F32", shape,
                  std::vector<float>(static_cast<size_t>(shape[0]), 0.5f));
    folder.tensor(folder.module(0) + ".v_scale", "F32", {1}, {0.25f});
    folder.write(block);
    return folder.path().empty() ? Diagnosis{} : diagnosis_of(folder);
  };
  EXPECT_NE(find(k_of_shape({4}, kCtTensor), "per-query-head"), nullptr);
  EXPECT_NE(find(k_of_shape({3}, kCtTensor), "wrong-shape"), nullptr);
  EXPECT_NE(find(k_of_shape({2}, kCtTensor), "wrong-shape"), nullptr) << "strategy is tensor";
  const std::string heads =
      replaced(std::string(kCtTensor), "tensor\",\"symm", "attn_head\",\"symm");
  const Diagnosis per_head = k_of_shape({2}, heads);
  EXPECT_EQ(find(per_head, "wrong-shape"), nullptr) << ids(per_head);
  EXPECT_NE(find(per_head, "per-head"), nullptr);
  EXPECT_EQ(per_head.health(), "healthy");
}

TEST(Diagnose, TwoSpellingsOfOneScale) {
  ScaleFolder folder = healthy();
  folder.tensor(folder.module(1) + ".k_proj.k_scale", "F32", {}, {ScaleFolder::k_scale(1)});
  folder.write(kCtTensor);
  expect_only(folder, "conflict", "healthy");
  folder.erase(folder.module(1) + ".k_proj.k_scale");
  folder.tensor(folder.module(1) + ".k_proj.k_scale", "F32", {}, {0.75f});
  folder.write(kCtTensor);
  expect_only(folder, "conflict", "broken");
  EXPECT_NE(find(diagnosis_of(folder), "conflict")->text.find("model.layers.1.self_attn.k_scale"),
            std::string::npos);
}

TEST(Diagnose, NormsOnKeysBoundTheirScale) {
  const auto with_norm = [](const std::string& model_type, float weight) {
    ScaleFolder folder(1);
    folder.tensor(folder.module(0) + ".k_norm.weight", "BF16", {64},
                  std::vector<float>(64, weight));
    folder.tensor(folder.module(0) + ".k_scale", "F32", {1}, {0.5f});  // keys of 224
    folder.tensor(folder.module(0) + ".v_scale", "F32", {1}, {0.25f});
    fixtures::write_file(folder.path() / "config.json",
                         replaced(folder.config(kCtTensor), "llama", model_type));
    fixtures::write_file(folder.path() / "model.safetensors", folder.shard.bytes());
    return diagnose(read_scales(folder.path()));
  };
  // sqrt(64) * 27 = 216 < 224 < 8 * 30
  EXPECT_NE(find(with_norm("qwen3", 27), "k-norm-limit"), nullptr);
  EXPECT_EQ(find(with_norm("qwen3", 30), "k-norm-limit"), nullptr);
  EXPECT_EQ(find(with_norm("gemma3_text", 28), "k-norm-limit"), nullptr) << "1 + 28";
  EXPECT_NE(find(with_norm("gemma3_text", 26), "k-norm-limit"), nullptr) << "1 + 26";
  EXPECT_EQ(with_norm("qwen3", 30).risk.level, "low");
}

TEST(Diagnose, Case45ABiasOnKeysIsARisk) {
  ScaleFolder folder(1);
  std::vector<float> bias(128, 0.5f);
  bias[17] = -300;
  folder.tensor(folder.module(0) + ".k_proj.bias", "BF16", {128}, bias);
  folder.write();
  const Diagnosis d = diagnosis_of(folder);
  EXPECT_EQ(d.risk.level, "high");
  EXPECT_NE(d.risk.text.find("600 times"), std::string::npos) << d.risk.text;
  EXPECT_EQ(d.risk.text.find("448"), std::string::npos) << d.risk.text;
  bias[17] = 500;
  folder.erase(folder.module(0) + ".k_proj.bias");
  folder.tensor(folder.module(0) + ".k_proj.bias", "BF16", {128}, bias);
  folder.write();
  EXPECT_NE(diagnosis_of(folder).risk.text.find("448"), std::string::npos);
}

TEST(Diagnose, CompanionsThatChangeWhatAScaleMeans) {
  ScaleFolder affine;
  affine.scales("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale");
  affine.tensor(affine.module(0) + ".k_proj.k_bias", "BF16", {1, 2, 1, 2}, {1, 2, 3, 4});
  affine.write(kProfileB);
  expect_only(affine, "affine", "broken");

  ScaleFolder zero = healthy();
  zero.tensor(zero.module(0) + ".k_zero_point", "F8_E4M3", {1}, {0});
  zero.write(kCtTensor);
  EXPECT_EQ(diagnosis_of(zero).health(), "healthy");
  zero.tensor(zero.module(0) + ".v_zero_point", "F8_E4M3", {1}, {56});
  zero.write(kCtTensor);
  expect_only(zero, "zero-point", "broken");
}

TEST(Diagnose, QueriesThatNobodyObserved) {
  ScaleFolder folder = healthy();
  folder.tensor(folder.module(0) + ".q_scale", "F32", {1}, {0.5f});
  folder.write(kCtTensor);
  EXPECT_EQ(find(diagnosis_of(folder), "q-garbage"), nullptr);
  folder.write(replaced(std::string(kCtTensor), "0.18.0", "0.19.0"));
  expect_only(folder, "q-garbage", "doubtful");
}

TEST(Diagnose, DeclarationsThatEnginesTreatDifferently) {
  ScaleFolder modelopt;
  modelopt.scales("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale");
  modelopt.write(
      R"({"quant_method":"modelopt","kv_cache_scheme":{"dynamic":false,"num_bits":8,"type":"float"}})");
  expect_only(modelopt, "kv-only-modelopt", "doubtful");
  modelopt.write(R"({"quant_method":"modelopt","quant_algo":"NVFP4","kv_cache_scheme":"NVFP4"})");
  expect_only(modelopt, "nvfp4-2688", "doubtful");
  ScaleFolder cast;
  cast.write(kProfileB);
  expect_only(cast, "declared-missing", "doubtful");

  ScaleFolder rotated = healthy();
  rotated.write(replaced(std::string(kCtTensor), "\"format\":\"dense\"",
                         R"("format":"dense","transform_config":{"config_groups":{"R3":
                         {"apply":[{"location":"k_cache","targets":["x"]}]}}})"));
  expect_only(rotated, "r3", "doubtful");
  ScaleFolder integers = healthy();
  integers.write(replaced(std::string(kCtTensor), "\"type\":\"float\"", "\"type\":\"int\""));
  expect_only(integers, "scheme", "doubtful");
  ScaleFolder latent = healthy();
  latent.write(kProfileB, R"(,"kv_lora_rank":512)");
  expect_only(latent, "mla", "doubtful");
}

TEST(Diagnose, FilesThatEnginesPassOver) {
  ScaleFolder folder;
  fixtures::SafetensorsWriter scales;
  ScaleFolder other = healthy();
  for (const auto& tensor : other.shard.tensors) {
    if (tensor.name.ends_with("_scale")) scales.tensors.push_back(tensor);
  }
  folder.write(kCtTensor);
  fixtures::write_file(folder.path() / "scales.safetensors", scales.bytes());
  const auto index = folder.path() / "model.safetensors.index.json";
  fixtures::write_file(
      index, R"({"weight_map":{"model.layers.0.self_attn.k_proj.weight":"model.safetensors"}})");
  const Diagnosis unnamed = diagnosis_of(folder);
  EXPECT_EQ(find(unnamed, "index")->where, "scales.safetensors") << ids(unnamed);
  EXPECT_EQ(unnamed.health(), "broken");
  fixtures::write_file(
      index, R"({"weight_map":{"model.layers.0.self_attn.k_proj.weight":"model.safetensors",
      "model.layers.0.self_attn.k_scale":"scales.safetensors"}})");
  expect_only(folder, "split-index", "doubtful");
}

TEST(Diagnose, UnreadScalesAreListed) {
  ScaleFolder folder = healthy();
  folder.tensor(folder.module(0) + ".kv_cache_scale", "F32", {1}, {0.5f});
  folder.write(kCtTensor);
  expect_only(folder, "unread", "doubtful");
}

}  // namespace
}  // namespace kv
