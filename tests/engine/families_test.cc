// Models with windows, caps, norms of their own and experts under every arm: the bits of a sequence
// depend on nothing but the sequence, and FP8 is stored in layers with a window too.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "stats/splitmix64.h"
#include "tests/engine/harness.h"
#include "tests/model/seeded_model.h"

namespace kv::engine_test {
namespace {

const std::vector<std::string> kFamilyArms = {"bf16", "fp8_scale1", "fp8_token_head",
                                              "fp8_scale1/bf16=0"};

std::shared_ptr<const Model> family_model(const std::string& architecture) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  std::shared_ptr<const Model>& model = loaded[architecture];
  if (!model) {
    static std::map<std::string, fixtures::ScratchFolder> folders;  // mapped while the model lives
    const std::filesystem::path& folder = folders[architecture].path();
    fixtures::write_hf_model(folder, seeded::model(seeded::family_spec(architecture)));
    model = Model::load(Checkpoint::open(folder));
  }
  return model;
}

std::vector<int32_t> family_tokens(uint64_t seed, int64_t count) {
  SplitMix64 random(seed);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int32_t>(random.below(256)));
  return out;
}

class FamilyArms : public testing::TestWithParam<std::string> {
 protected:
  /// The same tokens under all arms in one call, among `others` more sequences of each arm.
  std::vector<Logits> run_all(BatchPlan plan, int others) const {
    Engine engine(family_model(GetParam()), plan);
    std::vector<Sequence> sequences;
    std::vector<std::vector<int32_t>> prompts;
    for (const std::string& text : kFamilyArms) {
      const int arm = engine.add_arm(ArmSpec::parse(text), std::nullopt, 1024);
      for (int i = 0; i <= others; ++i) {
        sequences.push_back(engine.start(arm));
        prompts.push_back(i < others ? family_tokens(sequences.size(), 1 + 40 * i) : tokens_);
      }
    }
    std::vector<Feed> feeds;
    for (size_t i = 0; i < sequences.size(); ++i) feeds.push_back({&sequences[i], prompts[i]});
    const std::vector<Logits> all = run(engine, feeds);
    std::vector<Logits> ours;
    for (size_t a = 0; a < kFamilyArms.size(); ++a)
      ours.push_back(all[a * static_cast<size_t>(others + 1) + static_cast<size_t>(others)]);
    return ours;
  }

  const std::vector<int32_t> tokens_ = family_tokens(1, 150);  // several windows of 40
};

TEST_P(FamilyArms, BitsDependOnTheSequenceAlone) {
  const std::vector<Logits> expected = run_all({}, 0);
  const std::vector<Logits> chunked = run_all({.block_size = 16, .rows_per_pass = 93}, 3);
  for (size_t i = 0; i < kFamilyArms.size(); ++i) {
    EXPECT_EQ(difference(expected[i], chunked[i]), "") << kFamilyArms[i];
    if (i > 0) {
      EXPECT_NE(difference(expected[0], expected[i]), "")
          << kFamilyArms[i] << " stores nothing in FP8";
    }
  }
}

/// The windows of 40 tokens given back while the prompt runs, in the prompt's calls and after
/// forks.
TEST_P(FamilyArms, BitsAreTheSameWithoutTheTokensBeforeTheWindow) {
  const std::vector<int32_t> tokens = family_tokens(5, 400), tail = family_tokens(6, 33);
  const auto geometry = family_model(GetParam())->geometry();
  const bool has_window =
      std::ranges::any_of(geometry, [](const LayerGeometry& layer) { return layer.window > 0; });
  Engine all(family_model(GetParam()), {.block_size = 16, .rows_per_pass = 24});
  Engine kept(family_model(GetParam()), {.block_size = 16, .rows_per_pass = 24});
  for (const std::string& text : kFamilyArms) {
    std::vector<Logits> logits;
    for (Engine* engine : {&all, &kept}) {
      const int arm =
          engine->add_arm(ArmSpec::parse(text), std::nullopt, 1024, engine == &kept ? 3 : 0);
      Sequence sequence = engine->start(arm);
      logits.push_back(run(*engine, sequence, tokens));
      Sequence fork = sequence.fork();
      for (Sequence* each : {&fork, &sequence}) {
        for (const Logits& more : {run(*engine, *each, tail), run(*engine, *each, tail)})
          logits.back().insert(logits.back().end(), more.begin(), more.end());
      }
    }
    EXPECT_EQ(difference(logits[0], logits[1]), "") << text;
    const int arm = kept.num_arms() - 1;
    EXPECT_EQ(kept.facts(arm).allocated_bytes, kept.facts(arm).planned_bytes) << text;
    const int64_t bytes = kept.facts(arm).allocated_bytes, before = all.facts(arm).allocated_bytes;
    EXPECT_TRUE(has_window ? bytes < before : bytes == before) << text << " " << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyArms,
                         testing::Values("mistral", "qwen3_moe", "gemma2", "gemma3_text"),
                         [](const auto& tested) { return tested.param; });

/// Layers with a window count their window only; so does what `plan` and the verdict compute with.
TEST(FamilyCapacity, WindowsAreCounted) {
  const auto model = family_model("gemma2");  // windows 40 and none, 2 KV heads of 64
  const std::vector<LayerFormat> fp8(2, {Format::kE4m3PerTensor, Format::kE4m3PerTensor});
  const CacheBytes bytes = cache_bytes(model->geometry(), fp8, 1000);
  EXPECT_EQ(bytes.code_bytes, (40 + 1000) * 2 * 64 * 2);
}

/// What an engine allocates that gives every layer full pages, against the windows' bytes.
TEST(FamilyCapacity, Case82FullPagesForLayersWithAWindow) {
  std::vector<LayerGeometry> layers;
  for (int layer = 0; layer < 24; ++layer) layers.push_back({8, 64, layer % 2 == 0 ? 128 : 0});
  const std::vector<LayerFormat> bf16(24);
  const int64_t tokens = 8192, block = 16;
  const auto ideal = static_cast<double>(cache_bytes(layers, bf16, tokens).total_bytes());
  const auto full = static_cast<double>(block_bytes(layers, bf16, block) * tokens / block);
  EXPECT_NEAR(full / ideal, 1.97, 0.005);
}

}  // namespace
}  // namespace kv::engine_test
