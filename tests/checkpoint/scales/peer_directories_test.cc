// Directories that LLM Compressor 0.14.0.1 and ModelOpt 0.47.0 wrote themselves
// (peer_directories.py; weights are zeroed), against the scales that their own objects held.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/scales/diagnose.h"
#include "checkpoint/scales/scale_set.h"
#include "tests/checkpoint/writers.h"

namespace kv {
namespace {

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(KV_SOURCE_DIR) / "tests/golden/checkpoint/scales" / name;
}

class PeerDirectory : public testing::TestWithParam<std::string> {};

TEST_P(PeerDirectory, IsReadAsTheToolHeldIt) {
  const ScaleSet set = read_scales(golden(GetParam()));
  const auto expected =
      nlohmann::json::parse(fixtures::read_file(golden(GetParam()) / "expected.json"));
  EXPECT_EQ(set.scales.size(), expected.size());
  for (const auto& entry : expected) {
    const ScaleSide side = entry.at(1) == "k" ? ScaleSide::kK : ScaleSide::kV;
    const StoredScale* found = set.find(entry.at(0), side);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->values, entry.at(2).get<std::vector<float>>());
  }
  EXPECT_TRUE(set.unread.empty());
}

INSTANTIATE_TEST_SUITE_P(LlmCompressor, PeerDirectory,
                         testing::Values("ct_tensor", "ct_head", "ct_default"),
                         [](const auto& name) { return name.param; });

INSTANTIATE_TEST_SUITE_P(ModelOpt, PeerDirectory,
                         testing::Values("modelopt_fp8", "modelopt_kv_only", "modelopt_affine"),
                         [](const auto& name) { return name.param; });

std::vector<std::string> findings(const std::string& directory) {
  std::vector<std::string> ids;
  for (const ScaleWarning& warning : diagnose(read_scales(golden(directory))).warnings) {
    ids.push_back(warning.id);
  }
  return ids;
}

// Weights and cache; the cache alone, which vLLM and SGLang refuse; scales of centred values, where
// only the means beside them tell it.
TEST(PeerDirectories, WhatModelOptDeclaresIsRecognised) {
  EXPECT_EQ(findings("modelopt_fp8"), std::vector<std::string>{});
  EXPECT_EQ(findings("modelopt_kv_only"), std::vector<std::string>{"kv-only-modelopt"});
  const std::vector<std::string> affine = findings("modelopt_affine");
  ASSERT_FALSE(affine.empty());
  for (const std::string& id : affine) EXPECT_EQ(id, "affine");
  const ScaleSet set = read_scales(golden("modelopt_fp8"));
  EXPECT_EQ(set.declared.family, ScaleFamily::kModelOpt);
  EXPECT_EQ(set.declared.quant_algo, "FP8");
  EXPECT_EQ(set.declared.version, "0.47.0");
  EXPECT_EQ(set.find(0, ScaleSide::kK)->tensor, "model.layers.0.self_attn.k_proj.k_scale");
  EXPECT_EQ(set.find(0, ScaleSide::kK)->shape, std::vector<int64_t>{});
  EXPECT_GT(set.files.num_weight_scales, 0u) << "those of the linears are not the cache's";
}

TEST(PeerDirectories, TheDefaultObserverIsRecognisedByTheRelease) {
  EXPECT_EQ(diagnose(read_scales(golden("ct_tensor"))).health(), "healthy");
  const Diagnosis d = diagnose(read_scales(golden("ct_default")));
  ASSERT_EQ(d.warnings.size(), 1u);
  EXPECT_EQ(d.warnings[0].id, "ema");
}

}  // namespace
}  // namespace kv
