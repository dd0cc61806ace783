// Logits against transformers in F32. The yardstick is transformers in BF16 on the same weights: it
// rounds where we do (weights, activations, K, V, attention output) and in places where we keep F32
// (scores, residual stream, logits). So ours must be nearer than the peer's, or
// something else than rounding is wrong.

#include <gtest/gtest.h>

#include "tests/model/golden.h"
#include "tests/model/one_sequence.h"
#include "tests/model/seeded_model.h"

namespace kv {
namespace {

constexpr double kMostOfPeer = 1.0;

void expect_near_reference(const std::shared_ptr<const Model>& model,
                           const golden::Prompt& prompt) {
  SCOPED_TRACE("prompt " + prompt.name);
  OneSequence sequence(model, std::ssize(prompt.ids));
  const std::vector<float> logits = sequence.feed(prompt.ids);
  const golden::RowErrors ours = errors(prompt, logits, model->spec().vocab_size);
  EXPECT_LE(ours.logits, kMostOfPeer * prompt.peer.logits);
  EXPECT_LE(ours.lse, kMostOfPeer * prompt.peer.lse);
  EXPECT_LE(ours.mean, kMostOfPeer * prompt.peer.mean);
}

TEST(ModelLogits, TinyIsAsNearToF32AsBf16Is) {
  const auto model = load_model(KV_SOURCE_DIR "/models/tiny");
  for (const golden::Prompt& prompt : golden::read("tiny").prompts)
    expect_near_reference(model, prompt);
}

TEST(ModelLogits, Qwen2WithBiasesAndTiedHeadIsAsNear) {
  const golden::File recorded = golden::read("qwen2");
  const fixtures::TinyModel weights = seeded::model(seeded::qwen2_spec());
  ASSERT_EQ(seeded::checksum(weights), recorded.checksum) << "the formula differs, not the model";
  const fixtures::ScratchFolder folder;
  fixtures::write_hf_model(folder.path(), weights);
  const auto model = load_model(folder.path());
  for (const golden::Prompt& prompt : recorded.prompts) expect_near_reference(model, prompt);
}

TEST(ModelLogits, LlamaWithStretchedFrequenciesIsAsNear) {
  const golden::File recorded = golden::read("llama3");
  const fixtures::TinyModel weights = seeded::model(seeded::llama3_spec());
  ASSERT_EQ(seeded::checksum(weights), recorded.checksum) << "the formula differs, not the model";
  const fixtures::ScratchFolder folder;
  fixtures::write_hf_model(folder.path(), weights);
  std::string config = fixtures::hf_config(weights.spec);
  config.replace(config.size() - 1, 1, seeded::kLlama3Rope);
  fixtures::write_file(folder / "config.json", config);
  const auto model = load_model(folder.path());
  ASSERT_EQ(model->spec().rope.type, RopeType::kLlama3);
  for (const golden::Prompt& prompt : recorded.prompts) expect_near_reference(model, prompt);
}

/// Without the stretching the same weights must fail by far: the check above sees RoPE.
TEST(ModelLogits, TheRecordedRowsTellFrequenciesApart) {
  const golden::Prompt prompt = golden::read("llama3").prompt("400 tokens");
  const fixtures::ScratchFolder folder;
  fixtures::write_hf_model(folder.path(), seeded::model(seeded::llama3_spec()));
  const auto model = load_model(folder.path());
  OneSequence sequence(model, std::ssize(prompt.ids));
  const std::vector<float> logits = sequence.feed(prompt.ids);
  EXPECT_GT(errors(prompt, logits, model->spec().vocab_size).logits, 5 * prompt.peer.logits);
}

/// Greedy continuations agree wherever the reference's distance to the second largest logit exceeds
/// what the two logits can be off together: 4 deviations of a difference of two errors.
TEST(ModelLogits, TinyContinuesAsTheReferenceDoes) {
  const auto model = load_model(KV_SOURCE_DIR "/models/tiny");
  for (const golden::Prompt& prompt : golden::read("tiny").prompts) {
    SCOPED_TRACE("prompt " + prompt.name);
    const double tolerance = 4 * std::sqrt(2.0) * prompt.peer.logits;
    OneSequence sequence(model, std::ssize(prompt.ids) + std::ssize(prompt.greedy));
    std::vector<float> logits = sequence.feed(prompt.ids);
    const auto vocab = static_cast<size_t>(model->spec().vocab_size);
    for (const auto& [id, margin] : prompt.greedy) {
      const auto last = std::span(logits).last(vocab);
      const auto ours = std::ranges::max_element(last) - last.begin();
      if (margin > tolerance) {
        EXPECT_EQ(ours, id) << "margin " << margin;
      }
      logits = sequence.feed({&id, 1});
    }
  }
}

}  // namespace
}  // namespace kv
