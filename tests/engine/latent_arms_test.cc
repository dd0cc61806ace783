// A model that caches a latent (MLA) under every arm that such a cache has.

#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "tests/engine/harness.h"
#include "tests/model/seeded_model.h"

namespace kv::engine_test {
namespace {

std::shared_ptr<const Model> latent_model() {
  static const fixtures::ScratchFolder folder;  // mapped while the model lives
  static const auto model = [] {
    ModelSpec spec = seeded::deepseek_spec(true);
    spec.num_layers = 2;
    fixtures::write_hf_model(folder.path(), seeded::model(spec));
    return Model::load(Checkpoint::open(folder.path()));
  }();
  return model;
}

std::vector<int32_t> latent_tokens(uint64_t seed, int64_t count) {
  std::vector<int32_t> out = some_tokens(seed, count);
  for (int32_t& id : out) id %= 256;
  return out;
}

const std::vector<std::string> kLatentArms = {
    "bf16",       "fp8_scale1",          "fp8_tensor",       "fp8_head",
    "fp8_ds_mla", "fp8_tensor/math=fp8", "fp8_tensor/bf16=0"};

/// K's scales as calibrated, V's times `v_factor`.
ScaleTable latent_scales(float v_factor) {
  static const ScaleTable calibrated = calibrate(latent_model(), latent_tokens(5, 60), false);
  ScaleTable out = calibrated;
  for (int64_t layer = 0; layer < out.num_layers(); ++layer)
    out.set(layer, Side::kV, 0, v_factor * calibrated.heads(layer, Side::kV)[0]);
  return out;
}

/// Logits of the tokens under each arm, all in one call, behind `others` more sequences of each.
std::vector<Logits> under_arms(BatchPlan plan, int others, float v_factor = 1) {
  Engine engine(latent_model(), plan);
  std::vector<Sequence> sequences;
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string& text : kLatentArms) {
    const ArmSpec spec = ArmSpec::parse(text);
    const auto scales = spec.needs_scales() ? std::optional(latent_scales(v_factor)) : std::nullopt;
    const int arm = engine.add_arm(spec, scales, 512);
    for (int i = 0; i <= others; ++i) {
      sequences.push_back(engine.start(arm));
      prompts.push_back(i < others ? latent_tokens(sequences.size(), 31) : latent_tokens(1, 70));
    }
  }
  std::vector<Feed> feeds;
  for (size_t i = 0; i < sequences.size(); ++i) feeds.push_back({&sequences[i], prompts[i]});
  const std::vector<Logits> all = run(engine, feeds);
  std::vector<Logits> ours;
  for (size_t a = 0; a < kLatentArms.size(); ++a)
    ours.push_back(all[(a + 1) * static_cast<size_t>(others + 1) - 1]);
  return ours;
}

/// Alone and in one chunk, made once.
const std::vector<Logits>& alone_under_arms() {
  static const std::vector<Logits> logits = under_arms({}, 0);
  return logits;
}

TEST(LatentArms, BitsDependOnTheSequenceAlone) {
  const std::vector<Logits>& expected = alone_under_arms();
  const std::vector<Logits> chunked = under_arms({.block_size = 16, .rows_per_pass = 93}, 1);
  for (size_t i = 0; i < kLatentArms.size(); ++i) {
    EXPECT_EQ(difference(expected[i], chunked[i]), "") << kLatentArms[i];
    if (i > 0) {
      EXPECT_NE(difference(expected[0], expected[i]), "") << kLatentArms[i];
    }
  }
  EXPECT_EQ(difference(expected[2], expected[3]), "") << "one head: per head is per tensor";
}

/// Engines hold v_scale for MLA and do not read it: V is the latent, under K's scale.
TEST(LatentArms, ValuesAreReadThroughTheKeysScale) {
  const std::vector<Logits>& same = alone_under_arms();
  const std::vector<Logits> other = under_arms({}, 0, 7);
  for (size_t i = 0; i < kLatentArms.size(); ++i)
    EXPECT_EQ(difference(same[i], other[i]), "") << kLatentArms[i];
}

/// Layers kept in BF16 are read as they are, whatever their scales: with all of them it is the
/// control.
TEST(LatentArms, Case17ScalesDoNotTouchLayersInBf16) {
  Engine engine(latent_model(), {});
  const std::vector<int32_t> tokens = latent_tokens(1, 40);
  std::vector<Logits> logits;
  for (const std::string text : {"bf16", "fp8_tensor/bf16=0,1"}) {
    const ArmSpec spec = ArmSpec::parse(text);
    const int arm = engine.add_arm(
        spec, spec.needs_scales() ? std::optional(latent_scales(1)) : std::nullopt, 64);
    Sequence sequence = engine.start(arm);
    logits.push_back(run(engine, sequence, tokens));
  }
  EXPECT_EQ(difference(logits[0], logits[1]), "");
}

/// A scale for 128 values of one token rounds no worse than one for all tokens and values, whose
/// largest sets it.
TEST(LatentArms, ScalesOfTilesAreNearerToTheControl) {
  const std::vector<Logits>& logits = alone_under_arms();
  EXPECT_LT(rms_distance(logits[0], logits[4]), rms_distance(logits[0], logits[2]));
}

TEST(LatentArms, WhatNoEngineStoresIsRefused) {
  Engine engine(latent_model(), {});
  EXPECT_THROW(engine.add_arm(ArmSpec::parse("fp8_token_head"), std::nullopt, 64),
               UnsupportedError);
  EXPECT_THROW(engine.add_arm(ArmSpec::parse("fp8_scale1/bf16=0k"), std::nullopt, 64),
               UnsupportedError);
  EXPECT_THROW(engine.add_arm(ArmSpec::parse("fp8_ds_mla/math=fp8"), std::nullopt, 64),
               UnsupportedError);
  Engine plain(tiny_model(), {});
  EXPECT_THROW(plain.add_arm(ArmSpec::parse("fp8_ds_mla"), std::nullopt, 64), UnsupportedError);
  const std::vector<ArmLayout> layouts = {ArmLayout::kFp8Scale1, ArmLayout::kFp8Tensor,
                                          ArmLayout::kFp8DsMla};
  EXPECT_EQ(fp8_layouts(latent_model()->geometry()), layouts);
}

}  // namespace
}  // namespace kv::engine_test
