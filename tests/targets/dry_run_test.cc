// What each engine does with directories, layer by layer. Expected numbers are worked out here from
// the engines' rules as their documentation of record states them, not taken from the code.

#include "targets/dry_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

using fixtures::kCtTensor;
using fixtures::kProfileB;
using fixtures::replaced;
using fixtures::ScaleFolder;

const std::string kCtHead =
    replaced(std::string(kCtTensor), "tensor\",\"symm", "attn_head\",\"symm");
constexpr std::string_view kKvOnly =
    R"({"quant_method":"modelopt","kv_cache_scheme":{"dynamic":false,"num_bits":8,"type":"float"}})";
constexpr std::string_view kAutoFp8 =
    R"({"quant_method":"fp8","activation_scheme":"static","kv_cache_scheme":"static"})";

/// Four layers with K and V scales under the given names.
ScaleSet scaled(std::string_view block, const std::string& k = "self_attn.k_scale",
                const std::string& v = "self_attn.v_scale") {
  ScaleFolder folder;
  folder.scales(k, v);
  folder.write(block);
  return read_scales(folder.path());
}

ScaleSet modelopt_scaled(std::string_view block = kProfileB) {
  return scaled(block, "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale");
}

DryRun run(const ScaleSet& set, const std::string& target, const std::string& version = "",
           int tp = 1) {
  return dry_run(set, {target, version, tp});
}

bool warns(const DryRun& result, const std::string& id) {
  return std::ranges::find(result.warnings, id, &ScaleWarning::id) != result.warnings.end();
}

void expect_used(const DryRun& result) {
  EXPECT_TRUE(result.starts) << result.refusal;
  EXPECT_EQ(result.outcome, LoadOutcome::kUsed);
  ASSERT_EQ(result.layers.size(), 4u);
  for (const LayerOutcome& layer : result.layers) {
    EXPECT_EQ(layer.k.ranks.at(0), std::vector<float>{ScaleFolder::k_scale(layer.layer)});
    EXPECT_EQ(layer.v.ranks.at(0), std::vector<float>{ScaleFolder::v_scale(layer.layer)});
  }
}

TEST(DryRun, EveryKindHasARowForEveryEnginesNewestVersion) {
  for (const std::string_view engine : engines()) {
    const EngineRules& rules = engine_rules(engine);
    for (int kind = 0; kind <= static_cast<int>(DirectoryKind::kOther); ++kind) {
      const auto k = static_cast<DirectoryKind>(kind);
      EXPECT_NO_THROW(find_rule(rules, k, rules.version)) << engine << ": " << name(k);
      EXPECT_FALSE(name(k).empty());
    }
    EXPECT_FALSE(rules.source.empty());
  }
}

TEST(DryRun, Case138HeadsAreReplicatedOverMoreRanksOrRefusedWithWhatDivides) {
  EXPECT_EQ(heads_of_ranks(4, 8),
            (std::vector<std::vector<int>>{{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}}));
  EXPECT_EQ(heads_of_ranks(4, 2), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  for (const int tp : {3, 5, 6, 7, 9, 10}) {
    try {
      heads_of_ranks(4, tp);
      ADD_FAILURE() << tp;
    } catch (const ValueError& error) {
      EXPECT_EQ(error.what(), fmt::format("tp: 4 KV heads and {} ranks do not divide: expected 1, "
                                          "2, 4 ranks, or a multiple of 4",
                                          tp));
    }
  }
  const ScaleSet set = modelopt_scaled();
  const int heads = set.geometry.num_kv_heads;
  EXPECT_EQ(run(set, "vllm", "", 2 * heads).notes.back(),
            fmt::format("{} KV heads on {} ranks: each head and its scale stand on 2 of them, one "
                        "after the other",
                        heads, 2 * heads));
}

TEST(DryRun, AVersionNewerThanTheRulesIsSaid) {
  const ScaleSet set = modelopt_scaled();
  for (const std::string_view engine : {"vllm", "sglang"}) {
    const DryRun known = run(set, std::string(engine)), newer = run(set, std::string(engine), "99");
    EXPECT_TRUE(known.notes.empty() || known.notes.front().find("newer") == std::string::npos);
    ASSERT_FALSE(newer.notes.empty());
    EXPECT_EQ(newer.notes.front(),
              fmt::format("{} 99 is newer than {}, the newest that was looked at: taken to do what "
                          "that one does",
                          engine, engine_rules(engine).version));
    EXPECT_EQ(newer.basis, "inferred");
    EXPECT_EQ(newer.outcome, known.outcome);
    EXPECT_THROW(run(set, std::string(engine), "abc"), ValueError);
  }
}

/// vLLM makes scale parameters for MLA with ModelOpt's configuration only, and reads V through K's.
TEST(DryRun, LatentsHaveOneScaleOfModelOptsMaking) {
  ScaleSet modelopt = modelopt_scaled();
  modelopt.geometry.is_mla = true;
  const DryRun used = run(modelopt, "vllm");
  EXPECT_EQ(used.outcome, LoadOutcome::kUsed);
  EXPECT_TRUE(warns(used, "mla-v-scale"));
  ASSERT_EQ(used.layers.size(), 4u);
  for (const LayerOutcome& layer : used.layers) {
    EXPECT_EQ(layer.k.ranks.at(0), std::vector<float>{ScaleFolder::k_scale(layer.layer)});
    EXPECT_EQ(layer.v.ranks, layer.k.ranks);
    EXPECT_EQ(layer.v.how, "shared");
  }
  EXPECT_FALSE(warns(run(modelopt_scaled(), "vllm"), "mla-v-scale"));
  ScaleSet compressed = scaled(kCtTensor);
  compressed.geometry.is_mla = true;
  const DryRun dropped = run(compressed, "vllm");
  EXPECT_EQ(dropped.outcome, LoadOutcome::kDefaults);
  EXPECT_TRUE(warns(dropped, "ignored"));
}

TEST(DryRun, Case05TheDeclaredSchemeReachesVllmAndTheNewSglang) {
  const ScaleSet set = scaled(kCtTensor);
  const DryRun vllm = run(set, "vllm");
  expect_used(vllm);
  EXPECT_EQ(vllm.auto_dtype, "fp8_e4m3");
  expect_used(run(set, "sglang"));
  const DryRun old = run(set, "sglang", "0.5.10");
  EXPECT_EQ(old.outcome, LoadOutcome::kIgnored);
  EXPECT_EQ(old.auto_dtype, "16-bit");
  EXPECT_TRUE(warns(old, "ignored"));
  const DryRun trt = run(set, "tensorrt-llm");
  EXPECT_FALSE(trt.starts);
  EXPECT_TRUE(warns(trt, "kv-only-ct-trtllm"));
  EXPECT_EQ(run(set, "edge-llm").outcome, LoadOutcome::kIgnored);
}

TEST(DryRun, ProfileBIsUsedEverywhereButInTensorRtLlm) {
  const ScaleSet set = modelopt_scaled();
  for (const char* target : {"vllm", "vllm:cpu", "sglang", "edge-llm"}) {
    SCOPED_TRACE(target);
    expect_used(run(set, target));
  }
  const DryRun trt = run(set, "tensorrt-llm");
  EXPECT_EQ(trt.outcome, LoadOutcome::kDefaults);
  EXPECT_EQ(trt.layers.at(2).k.ranks.at(0), std::vector<float>{1.0f});
  EXPECT_TRUE(warns(trt, "ignored"));
}

TEST(DryRun, RefusalsSayWithWhichMessage) {
  const DryRun kv_only = run(modelopt_scaled(kKvOnly), "vllm");
  EXPECT_FALSE(kv_only.starts);
  EXPECT_EQ(kv_only.refusal, "Missing 'quant_algo'");
  EXPECT_TRUE(warns(kv_only, "kv-only-modelopt"));
  EXPECT_EQ(run(modelopt_scaled(kKvOnly), "edge-llm").outcome, LoadOutcome::kUsed);
  const DryRun bare = run(scaled(""), "vllm");
  EXPECT_FALSE(bare.starts);
  EXPECT_NE(bare.refusal.find("no module or parameter"), std::string::npos);
  EXPECT_EQ(run(scaled(""), "vllm", "0.28").outcome, LoadOutcome::kIgnored);
  EXPECT_THROW(run(scaled(""), "vllm", "newest"), ValueError);
  EXPECT_THROW(run(scaled(""), "ollama"), ValueError);
}

TEST(DryRun, Case96WhatAutoBecomes) {
  EXPECT_EQ(run(modelopt_scaled(), "vllm").auto_dtype, "fp8_e4m3");
  EXPECT_TRUE(run(modelopt_scaled(), "vllm").flag.empty());
  const DryRun fp8 = run(scaled(kAutoFp8), "vllm");
  EXPECT_EQ(fp8.auto_dtype, "16-bit");
  EXPECT_EQ(fp8.flag, "--kv-cache-dtype fp8");
  expect_used(fp8);
}

// F32 0.012345679 is 0.012329102 in a BF16 model and 0.012344360 in an FP16 one (executed, 0.32.0).
TEST(DryRun, VllmRoundsScalarsToTheModelsDtype) {
  for (const auto& [dtype, expected] : std::vector<std::pair<std::string, float>>{
           {"bfloat16", 0.012329102f}, {"float16", 0.01234436f}, {"float32", 0.012345679f}}) {
    ScaleFolder folder(1);
    folder.tensor(folder.module(0) + ".k_proj.k_scale", "F32", {}, {0.012345679f});
    folder.tensor(folder.module(0) + ".v_proj.v_scale", "F32", {}, {0.5f});
    folder.write(kProfileB);
    fixtures::write_file(folder.path() / "config.json",
                         replaced(folder.config(kProfileB), "bfloat16", dtype));
    const DryRun result = run(read_scales(folder.path()), "vllm");
    EXPECT_FLOAT_EQ(result.layers.at(0).k.ranks.at(0).at(0), expected) << dtype;
  }
  ScaleFolder exact(1);
  exact.tensor(exact.module(0) + ".k_scale", "F32", {1}, {0.012345679f});
  exact.tensor(exact.module(0) + ".v_scale", "F32", {1}, {0.5f});
  exact.write(kCtTensor);
  EXPECT_EQ(run(read_scales(exact.path()), "vllm").layers.at(0).k.ranks.at(0).at(0), 0.012345679f);
}

struct OneSide {
  std::vector<float> k, v;  // empty = absent
  bool starts = true;
  float k_held = 1, v_held = 1;
};

ScaleSet one_layer(const OneSide& one) {
  ScaleFolder folder(1);
  if (!one.k.empty()) folder.tensor(folder.module(0) + ".k_proj.k_scale", "F32", {}, one.k);
  if (!one.v.empty()) folder.tensor(folder.module(0) + ".v_proj.v_scale", "F32", {}, one.v);
  folder.write(kProfileB);
  return read_scales(folder.path());
}

TEST(DryRun, Case07WhatTakesThePlaceOfAnAbsentOrUnusableScale) {
  const std::vector<OneSide> vllm = {{{0.5f}, {0.25f}, true, 0.5f, 0.25f},
                                     {{-1}, {-1}, true, 1, 1},
                                     {{0.5f}, {}, true, 0.5f, 0.5f},
                                     {{0.5f}, {0}, true, 0.5f, 0.5f},
                                     {{0.5f}, {-1}, true, 0.5f, 0.5f},
                                     {{}, {0.25f}, false, 1, 1},
                                     {{0}, {0.25f}, false, 1, 1},
                                     {{0}, {0}, false, 1, 1},
                                     {{-1}, {0}, false, 1, 1}};
  for (const OneSide& one : vllm) {
    const DryRun result = run(one_layer(one), "vllm");
    EXPECT_EQ(result.starts, one.starts) << result.refusal;
    if (!one.starts) continue;
    EXPECT_EQ(result.layers.at(0).k.ranks.at(0).at(0), one.k_held);
    EXPECT_EQ(result.layers.at(0).v.ranks.at(0).at(0), one.v_held);
  }
  const std::vector<OneSide> sglang = {
      {{0.5f}, {0.25f}, true, 0.5f, 0.25f}, {{0}, {0}, true, 1, 1},
      {{0.5f}, {}, true, 0.5f, 0.5f},       {{0.5f}, {0}, true, 0.5f, 0.5f},
      {{}, {0.25f}, false, 1, 1},           {{0}, {0.25f}, false, 1, 1}};
  for (const OneSide& one : sglang) {
    const DryRun result = run(one_layer(one), "sglang");
    EXPECT_EQ(result.starts, one.starts) << result.refusal;
    if (!one.starts) continue;
    EXPECT_EQ(result.layers.at(0).k.ranks.at(0).at(0), one.k_held);
    EXPECT_EQ(result.layers.at(0).v.ranks.at(0).at(0), one.v_held);
  }
}

TEST(DryRun, AMissingLayerIsOneWithoutAWord) {
  ScaleFolder folder;
  folder.scales("self_attn.k_scale", "self_attn.v_scale");
  folder.erase(folder.module(2) + ".v_scale");
  folder.write(kCtTensor);
  const DryRun result = run(read_scales(folder.path()), "vllm");
  EXPECT_EQ(result.layers.at(2).v.how, "default 1.0");
  EXPECT_EQ(result.layers.at(2).v.ranks.at(0), std::vector<float>{1.0f});
  EXPECT_EQ(result.layers.at(2).k.how, "used");
  EXPECT_TRUE(result.message.empty());
}

ScaleSet per_head(int num_kv_heads) {
  ScaleFolder folder(1);
  std::vector<float> values;
  for (int h = 0; h < num_kv_heads; ++h) values.push_back(0.25f * static_cast<float>(h + 1));
  folder.tensor(folder.module(0) + ".k_scale", "BF16", {num_kv_heads, 1, 1}, values);
  folder.tensor(folder.module(0) + ".v_scale", "BF16", {num_kv_heads, 1, 1}, values);
  fixtures::write_file(folder.path() / "model.safetensors", folder.shard.bytes());
  fixtures::write_file(
      folder.path() / "config.json",
      replaced(
          folder.config(kCtHead), "\"num_attention_heads\":4,\"num_key_value_heads\":2",
          "\"num_attention_heads\":64,\"num_key_value_heads\":" + std::to_string(num_kv_heads)));
  return read_scales(folder.path());
}

TEST(DryRun, Case20HeadsOfRanksAndReplicatedHeads) {
  const ScaleSet set = per_head(8);
  const DryRun four = run(set, "vllm", "", 4);
  const DryRun sixteen = run(set, "vllm", "", 16);
  for (size_t rank = 0; rank < 4; ++rank) {
    const float first = 0.25f * static_cast<float>(2 * rank + 1);
    EXPECT_EQ(four.layers.at(0).k.ranks.at(rank), (std::vector<float>{first, first + 0.25f}));
  }
  for (size_t rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(sixteen.layers.at(0).v.ranks.at(rank),
              std::vector<float>{0.25f * static_cast<float>(rank / 2 + 1)});
  }
  EXPECT_EQ(run(set, "vllm").layers.at(0).k.ranks.at(0).size(), 8u);
  EXPECT_THROW(run(set, "vllm", "", 3), ValueError);
  EXPECT_EQ(heads_of_ranks(2, 1), (std::vector<std::vector<int>>{{0, 1}}));
}

TEST(DryRun, Case20PerHeadScalesAreRefusedIgnoredOrCollapsed) {
  const ScaleSet set = per_head(8);
  const DryRun cpu = run(set, "vllm:cpu");
  EXPECT_EQ(cpu.layers.at(0).k.how, "largest head");
  EXPECT_EQ(cpu.layers.at(0).k.ranks.at(0), std::vector<float>{2.0f});
  EXPECT_TRUE(warns(cpu, "per-head"));
  EXPECT_EQ(run(set, "vllm:cpu", "", 2).layers.at(0).k.ranks.at(0), std::vector<float>{1.0f})
      << "each rank takes the maximum of its own heads";
  const DryRun triton = run(set, "vllm:triton");
  EXPECT_FALSE(triton.starts);
  EXPECT_EQ(triton.refusal, "per-head quant scales not supported");
  const DryRun sglang = run(set, "sglang");
  EXPECT_EQ(sglang.outcome, LoadOutcome::kIgnored);
  EXPECT_TRUE(warns(sglang, "per-head"));
  ScaleFolder scalar(1);
  scalar.tensor(scalar.module(0) + ".k_proj.k_scale", "F32", {2}, {0.5f, 0.25f});
  scalar.write(kProfileB);
  const DryRun base = run(read_scales(scalar.path()), "vllm");
  EXPECT_NE(base.refusal.find("expects a scalar weight"), std::string::npos);
}

TEST(DryRun, Case18SharingLayersReadWithTheOwnersScale) {
  ScaleFolder folder(4);
  for (const int layer : {0, 1}) {
    folder.tensor(folder.module(layer) + ".k_scale", "F32", {1},
                  {0.5f * static_cast<float>(layer + 1)});
    folder.tensor(folder.module(layer) + ".v_scale", "F32", {1}, {0.25f});
  }
  folder.write(kCtTensor, R"(,"num_kv_shared_layers":2)");
  const DryRun result = run(read_scales(folder.path()), "vllm");
  ASSERT_EQ(result.layers.size(), 4u);
  EXPECT_EQ(result.layers.at(3).reads_layer, 1);
  EXPECT_EQ(result.layers.at(3).k.ranks.at(0), std::vector<float>{1.0f});
}

TEST(DryRun, OldFlashInferReadsWithOne) {
  const ScaleSet set = scaled(kCtTensor);
  EXPECT_TRUE(warns(run(set, "vllm:flashinfer", "0.19.1"), "flashinfer-old"));
  EXPECT_FALSE(warns(run(set, "vllm:flashinfer", "0.20"), "flashinfer-old"));
  EXPECT_FALSE(warns(run(set, "vllm:flash_attn3", "0.19.1"), "flashinfer-old"));
}

TEST(DryRun, Case12SglangsJsonIsTakenWholeOrNotAtAll) {
  fixtures::ScratchFolder folder;
  const auto path = folder / "kv_cache_scales.json";
  fixtures::write_file(path, R"({"model_type":"llama","kv_cache":{"dtype":"float8_e4m3fn",
      "scaling_factor":{"0":{"0":0.5,"1":0.25}}}})");
  const ScaleSet set = read_scales(path);
  const DryRun one = run(set, "sglang");
  EXPECT_EQ(one.layers.at(1).k.ranks.at(0), std::vector<float>{0.25f});
  EXPECT_EQ(one.layers.at(1).v.how, "shared");
  const DryRun two = run(set, "sglang", "", 2);
  EXPECT_EQ(two.outcome, LoadOutcome::kDefaults) << "one rank is missing";
  EXPECT_TRUE(warns(two, "ignored"));
}

TEST(DryRun, EdgeLlmReadsOnlyTheProjectionsNamesAndCastsBf16) {
  const ScaleSet bare = scaled(kProfileB);
  EXPECT_EQ(run(bare, "edge-llm").layers.at(0).k.how, "default 1.0");
  ScaleFolder tiny(1);
  tiny.tensor(tiny.module(0) + ".k_proj.k_scale", "BF16", {}, {0x1p-26f});
  tiny.tensor(tiny.module(0) + ".v_proj.v_scale", "F32", {}, {0x1p-26f});
  tiny.write(kProfileB);
  const DryRun result = run(read_scales(tiny.path()), "edge-llm");
  EXPECT_EQ(result.layers.at(0).k.ranks.at(0), std::vector<float>{0.0f}) << "below half of 2^-24";
  EXPECT_EQ(result.layers.at(0).v.ranks.at(0), std::vector<float>{0x1p-26f});
  EXPECT_TRUE(warns(result, "fp16-underflow"));
}

TEST(DryRun, HeadSizesThatABackendDoesNotTake) {
  ScaleFolder folder(1);
  folder.scales("self_attn.k_scale", "self_attn.v_scale");
  fixtures::write_file(folder.path() / "model.safetensors", folder.shard.bytes());
  fixtures::write_file(folder.path() / "config.json",
                       replaced(folder.config(kCtTensor), "\"head_dim\":64", "\"head_dim\":80"));
  EXPECT_TRUE(warns(run(read_scales(folder.path()), "vllm:cpu"), "head-dim"));
  EXPECT_FALSE(warns(run(read_scales(folder.path()), "vllm:flash_attn3"), "head-dim"));
}

TEST(CompareVersions, NumbersNotText) {
  EXPECT_LT(compare_versions("0.9", "0.10"), 0);
  EXPECT_EQ(compare_versions("0.32", "0.32.0"), 0);
  EXPECT_GT(compare_versions("0.5.23", "0.5.9"), 0);
  for (const char* bad : {"", "0.x", "0..1", "-1", "0.1.", "v0.32"}) {
    EXPECT_THROW(compare_versions(bad, "1"), ValueError) << bad;
  }
}

}  // namespace
}  // namespace kv
