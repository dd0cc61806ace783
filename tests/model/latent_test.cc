// Models that cache a latent (MLA), against transformers, which expands keys and values per head.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"
#include "model/experts.h"
#include "tests/model/golden.h"
#include "tests/model/one_sequence.h"
#include "tests/model/seeded_model.h"

namespace kv {
namespace {

/// A seeded model as a Hugging Face directory, with what transformers gave for it.
struct Files {
  explicit Files(bool is_lite)
      : model(seeded::model(seeded::deepseek_spec(is_lite))),
        recorded(golden::read(is_lite ? "deepseek_v2_lite" : "deepseek_v2")) {
    fixtures::write_hf_model(folder.path(), model);
  }

  /// The same weights declared otherwise.
  std::shared_ptr<const Model> load_as(const ModelSpec& spec) const {
    fixtures::write_file(folder / "config.json", fixtures::hf_config(spec));
    return load_model(folder.path());
  }

  fixtures::TinyModel model;
  golden::File recorded;
  fixtures::ScratchFolder folder;
};

const Files& files_of(bool is_lite) {
  static const Files lite(true), full(false);
  return is_lite ? lite : full;
}

class Latents : public testing::TestWithParam<bool> {
 protected:
  const Files& files_ = files_of(GetParam());
  const golden::Prompt& long_prompt_ = files_.recorded.prompt("150 tokens");
};

std::vector<float> latent_logits(const std::shared_ptr<const Model>& model,
                             const golden::Prompt& prompt) {
  return OneSequence(model, std::ssize(prompt.ids)).feed(prompt.ids);
}

/// As for other mixtures of experts: a token that rounding sends elsewhere makes most of the mean.
TEST_P(Latents, LogitsAreAsNearToF32AsBf16Is) {
  ASSERT_EQ(seeded::checksum(files_.model), files_.recorded.checksum) << "the formula differs";
  const auto model = files_.load_as(files_.model.spec);
  EXPECT_EQ(other_parts_text(model->spec()), other_parts_text(files_.model.spec));
  for (const golden::Prompt& prompt : files_.recorded.prompts) {
    SCOPED_TRACE(prompt.name);
    const golden::RowErrors ours =
        errors(prompt, latent_logits(model, prompt), model->spec().vocab_size);
    EXPECT_LE(ours.logits, 1.5 * prompt.peer.logits);
  }
}

TEST_P(Latents, ChunksGiveTheSameBits) {
  const auto model = files_.load_as(files_.model.spec);
  OneSequence sequence(model, 150);
  std::vector<float> pieces;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 62}, {63, 87}}) {
    const std::vector<float> piece =
        sequence.feed(std::span(long_prompt_.ids).subspan(first, count));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(pieces, latent_logits(model, long_prompt_));
}

/// Without a part that sets it apart, a model misses its reference by far: the rows see the part.
TEST_P(Latents, TheRecordedRowsSeeEveryPart) {
  const std::vector<std::pair<const char*, void (*)(ModelSpec&)>> parts = {
      {"mscale", [](ModelSpec& s) { s.rope.mscale = 2.0; }},
      {"mscale_all_dim", [](ModelSpec& s) { s.rope.mscale_all_dim = 2.0; }},
      {"theta", [](ModelSpec& s) { s.rope.theta = 1e6; }},
      {"factor", [](ModelSpec& s) { s.experts_scale = 0.5; }},
      {"chosen", [](ModelSpec& s) { s.experts_per_token = 1; }},
      {"groups", [](ModelSpec& s) {
         s.expert_groups = s.expert_groups > 0 ? 0 : 4;
         s.groups_per_token = 2;
       }}};
  for (const auto& [name, change] : parts) {
    ModelSpec other = files_.model.spec;
    change(other);
    if (fixtures::hf_config(other) == fixtures::hf_config(files_.model.spec)) continue;
    const auto model = files_.load_as(other);
    EXPECT_GT(errors(long_prompt_, latent_logits(model, long_prompt_), 256).logits,
              2 * long_prompt_.peer.logits)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(ModelLogits, Latents, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "lite" : "grouped"; });

/// What an observer is shown is what the cache holds: latent and turned key side by side, once.
class OneLayer : public AttentionObserver {
 public:
  void on_attention(const AttentionTap& tap) override {
    if (tap.layer != 0) return;
    EXPECT_EQ(tap.latent_values, 128);
    EXPECT_EQ(tap.v, tap.k);
    EXPECT_EQ(tap.num_kv_heads, 1);
    EXPECT_EQ(tap.head_dim, 144);
    latents.assign(tap.k, tap.k + tap.num_tokens * tap.head_dim);
    block_out.assign(tap.block_out, tap.block_out + tap.num_tokens * tap.hidden_size);
    // V alone of one token is what attention to one token gives: every head gets the latent.
    std::vector<float> heads;
    for (int64_t h = 0; h < tap.num_q_heads; ++h) {
      for (int64_t d = 0; d < tap.value_dim(); ++d) heads.push_back(bf16::decode(tap.k[d]));
    }
    first_out.resize(static_cast<size_t>(tap.hidden_size));
    tap.project(heads.data(), 1, first_out.data());
  }
  std::vector<uint16_t> latents;
  std::vector<float> block_out, first_out;
};

TEST(LatentTap, ShowsWhatTheCacheHoldsAndProjectsItsBeginning) {
  const Files& files = files_of(true);
  const auto model = files.load_as(files.model.spec);
  const golden::Prompt& prompt = files.recorded.prompt("5 tokens");
  OneSequence sequence(model, 5);
  OneLayer seen;
  sequence.feed(prompt.ids, &seen);
  const CacheView& view = sequence.cache().layer(0);
  const auto* stored = reinterpret_cast<const uint16_t*>(view.block(sequence.table().blocks()[0]));
  EXPECT_TRUE(std::equal(seen.latents.begin(), seen.latents.end(), stored));
  EXPECT_EQ(view.page.page_bytes, 64 * 2 * 144);
  for (size_t i = 0; i < seen.first_out.size(); ++i)
    EXPECT_EQ(seen.first_out[i], seen.block_out[i]);
}

TEST(LatentPlants, WouldChangeVTooAndAreRefused) {
  const Files& files = files_of(true);
  const auto model = files.load_as(files.model.spec);
  EXPECT_THROW(model->with_key_offset(0, std::vector<float>(144)), ValueError);
  EXPECT_THROW(model->with_token_dispersion(TokenDispersion([](int64_t) { return 1; })),
               ValueError);
}

TEST(ExpertGroupsOfARow, TheBestGroupsAreChosenFirst) {
  const std::vector<float> scores = {5, 0, 4, 4.5f, 1, 4.8f, 2, 3};
  const auto all = share_rows(scores, 8, 3, false);
  const auto grouped = share_rows(scores, 8, 3, false, {4, 2});  // of {5, 0} and {1, 4.8}
  const auto chosen = [](const auto& shares) {
    std::vector<size_t> out;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (!shares[i].empty()) out.push_back(i);
    }
    return out;
  };
  EXPECT_EQ(chosen(all), (std::vector<size_t>{0, 3, 5}));
  EXPECT_EQ(chosen(grouped), (std::vector<size_t>{0, 4, 5}));
  EXPECT_EQ(grouped[5][0].weight, all[5][0].weight);  // over all experts, as before
}

}  // namespace
}  // namespace kv
