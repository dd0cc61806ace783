// Logits against transformers in F32. The yardstick is transformers in BF16 on the same weights: it
// rounds where we do (weights, activations, K, V, attention output) and in places where we keep F32
// (scores, residual stream, logits). So ours must be nearer than the peer's, or
// something else than rounding is wrong.

#include <gtest/gtest.h>

#include <map>
#include <memory>

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

/// A seeded model of another architecture as a Hugging Face directory, made once.
struct FamilyFiles {
  explicit FamilyFiles(const std::string& architecture)
      : model(seeded::model(seeded::family_spec(architecture))),
        recorded(golden::read(architecture)) {
    fixtures::write_hf_model(folder.path(), model);
  }

  /// The same weights declared otherwise.
  std::shared_ptr<const Model> load_as(const ModelSpec& spec) const {
    const fixtures::ScratchFolder other;
    fixtures::write_file(other / "config.json", fixtures::hf_config(spec));
    std::filesystem::create_symlink(folder / "model.safetensors", other / "model.safetensors");
    return load_model(other.path());
  }

  fixtures::TinyModel model;
  golden::File recorded;
  fixtures::ScratchFolder folder;
};

const FamilyFiles& files_of(const std::string& architecture) {
  static std::map<std::string, std::unique_ptr<FamilyFiles>> made;
  std::unique_ptr<FamilyFiles>& files = made[architecture];
  if (!files) files = std::make_unique<FamilyFiles>(architecture);
  return *files;
}

std::vector<float> logits_of(const std::shared_ptr<const Model>& model,
                             const golden::Prompt& prompt) {
  return OneSequence(model, std::ssize(prompt.ids)).feed(prompt.ids);
}

golden::RowErrors errors_of(const std::shared_ptr<const Model>& model,
                            const golden::Prompt& prompt) {
  return errors(prompt, logits_of(model, prompt), model->spec().vocab_size);
}

class Families : public testing::TestWithParam<std::string> {
 protected:
  const FamilyFiles& files_ = files_of(GetParam());
  const golden::Prompt& long_prompt_ = files_.recorded.prompt("150 tokens");
};

TEST_P(Families, LogitsAreAsNearToF32AsBf16Is) {
  constexpr double kMost = 1.5;
  ASSERT_EQ(seeded::checksum(files_.model), files_.recorded.checksum) << "the formula differs";
  const auto model = load_model(files_.folder.path());
  for (const golden::Prompt& prompt : files_.recorded.prompts) {
    SCOPED_TRACE(prompt.name);
    const golden::RowErrors ours = errors_of(model, prompt);
    EXPECT_LE(ours.logits, kMost * prompt.peer.logits);
    // One token that rounding sent to another expert makes most of these, and it is not the peer's.
    if (files_.model.spec.num_experts > 0) continue;
    EXPECT_LE(ours.lse, kMost * prompt.peer.lse);
    EXPECT_LE(ours.mean, kMost * prompt.peer.mean);
  }
}

/// The same bits, though GGUF interleaves, fuses, stacks and folds; weights in BF16 in both.
TEST_P(Families, GgufGivesTheSameBits) {
  fixtures::TinyModel model = files_.model;
  if (GetParam() == "mistral") model.spec.windows.clear();  // GGUF's llama has none
  model.spec.softmax_scale = 0;                             // nor other scales for small models
  const fixtures::ScratchFolder folder;
  fixtures::write_file(folder / "model.gguf", fixtures::gguf_model(model, "BF16").bytes());
  const auto hf = files_.load_as(model.spec), gguf = load_model(folder / "model.gguf");
  EXPECT_EQ(other_parts_text(hf->spec()), other_parts_text(gguf->spec()));
  EXPECT_EQ(logits_of(hf, long_prompt_), logits_of(gguf, long_prompt_));
}

/// Chunks change no bit: windows, caps, norms and experts included.
TEST_P(Families, ChunksGiveTheSameBits) {
  const auto model = load_model(files_.folder.path());
  const std::vector<int32_t>& ids = long_prompt_.ids;
  OneSequence sequence(model, 150);
  std::vector<float> pieces;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 62}, {63, 87}}) {
    const std::vector<float> piece = sequence.feed(std::span(ids).subspan(first, count));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(pieces, logits_of(model, long_prompt_));
}

/// Without a part that sets it apart, a model misses its reference by far: the rows see the part.
TEST_P(Families, TheRecordedRowsSeeEveryPart) {
  const std::vector<std::pair<const char*, void (*)(ModelSpec&)>> parts = {
      {"windows", [](ModelSpec& s) { s.windows.clear(); }},
      {"softmax_scale", [](ModelSpec& s) { s.softmax_scale = 0; }},
      {"attention_soft_cap", [](ModelSpec& s) { s.attention_soft_cap = 20; }},
      {"logit_soft_cap", [](ModelSpec& s) { s.logit_soft_cap = 20; }},
      {"rope", [](ModelSpec& s) { s.rope.theta = s.rope.theta == 1e4 ? 1e6 : 1e4; }},
      {"window_rope",
       [](ModelSpec& s) {
         if (s.window_rope) s.window_rope->theta = 2e4;
       }},
      {"experts_per_token", [](ModelSpec& s) { s.experts_per_token = 1; }}};
  for (const auto& [name, change] : parts) {
    ModelSpec other = files_.model.spec;
    change(other);
    const bool has_cap = files_.model.spec.attention_soft_cap > 0;
    const bool is_cap = std::string_view(name).ends_with("cap");
    if (is_cap && !has_cap) continue;
    if (fixtures::hf_config(other) == fixtures::hf_config(files_.model.spec)) continue;
    EXPECT_GT(errors_of(files_.load_as(other), long_prompt_).logits, 3 * long_prompt_.peer.logits)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(ModelLogits, Families,
                         testing::Values("mistral", "mixtral", "qwen3", "qwen3_moe", "phi3",
                                         "gemma2", "gemma3_text"),
                         [](const auto& tested) { return tested.param; });

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
