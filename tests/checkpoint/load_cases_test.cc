// Checkpoints that others met in the field: one test each, numbered as in docs/cases.md.

#include "checkpoint/checkpoint.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using fixtures::GgufWriter;
using fixtures::SafetensorsWriter;
using fixtures::TinyModel;

class LoadCases : public testing::Test {
 protected:
  std::unique_ptr<Checkpoint> open(const GgufWriter& writer) {
    fixtures::write_file(folder_ / "tiny.gguf", writer.bytes());
    return Checkpoint::open(folder_ / "tiny.gguf");
  }
  std::unique_ptr<Checkpoint> open(const TinyModel& model, const SafetensorsWriter& weights) {
    fixtures::write_file(hf() / "config.json", fixtures::hf_config(model.spec));
    fixtures::write_file(hf() / "model.safetensors", weights.bytes());
    return Checkpoint::open(hf());
  }
  std::filesystem::path hf() {
    std::filesystem::create_directories(folder_ / "hf");
    return folder_ / "hf";
  }
  template <class... Args>
  std::string refusal(const Args&... args) {
    try {
      open(args...);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "read";
  }
  static TinyModel model(bool tied) {
    ModelSpec spec = fixtures::tiny_spec();
    spec.tied_embeddings = tied;
    return fixtures::make_tiny_model(spec, 1);
  }

  fixtures::ScratchFolder folder_;
};

TEST_F(LoadCases, Case133LayersWithoutTensors) {
  GgufWriter gguf = fixtures::gguf_model(model(false));
  std::erase_if(gguf.tensors, [](const auto& t) { return t.name.starts_with("blk."); });
  EXPECT_EQ(refusal(gguf), "tiny.gguf: declares 2 layers, found tensors for 0");

  SafetensorsWriter weights = fixtures::hf_weights(model(false));
  std::erase_if(weights.tensors, [](const auto& t) { return t.name.starts_with("model.layers."); });
  EXPECT_EQ(refusal(model(false), weights), "hf: declares 2 layers, found tensors for 0");
}

TEST_F(LoadCases, Case133OtherNumbersOfLayers) {
  GgufWriter gguf = fixtures::gguf_model(model(false));
  gguf.set_u32("llama.block_count", 24);
  EXPECT_EQ(refusal(gguf), "tiny.gguf: declares 24 layers, found tensors for 2; layer 2 has none");
  gguf.set_u32("llama.block_count", 1);  // would be a model cut short
  EXPECT_EQ(refusal(gguf), "tiny.gguf: declares 1 layers, found tensors for 2");
  gguf.set_u32("llama.block_count", 2);
  for (auto& tensor : gguf.tensors) {
    if (tensor.name.starts_with("blk.0.")) tensor.name.replace(4, 1, "7");
  }
  EXPECT_EQ(refusal(gguf), "tiny.gguf: declares 2 layers, found tensors for 2; layer 0 has none");
}

TEST_F(LoadCases, Case136HeadMissingThoughUntied) {
  SafetensorsWriter weights = fixtures::hf_weights(model(true));  // no lm_head
  EXPECT_EQ(refusal(model(false), weights),
            "hf: tensor \"lm_head.weight\" is missing, though tie_word_embeddings is false");
}

TEST_F(LoadCases, Case136HeadMissingAndTied) {
  const auto checkpoint = open(model(true), fixtures::hf_weights(model(true)));
  EXPECT_TRUE(checkpoint->spec().tied_embeddings);
  EXPECT_FALSE(checkpoint->has("lm_head.weight"));
  EXPECT_TRUE(checkpoint->notes().empty());
  EXPECT_TRUE(open(fixtures::gguf_model(model(true)))->spec().tied_embeddings);
}

TEST_F(LoadCases, Case137HeadPresentThoughTied) {
  const auto same = [&] {
    SafetensorsWriter weights = fixtures::hf_weights(model(true));
    weights.tensors.push_back(weights.tensors[0]);
    weights.tensors.back().name = "lm_head.weight";
    return weights;
  };
  const auto checkpoint = open(model(true), same());
  EXPECT_TRUE(checkpoint->spec().tied_embeddings);
  EXPECT_EQ(checkpoint->notes(),
            std::vector<std::string>{"tie_word_embeddings is true, so model.embed_tokens.weight is "
                                     "the head; lm_head.weight holds the same values and is not "
                                     "used"});
  EXPECT_EQ(checkpoint->unread().front(), "lm_head.weight");
}

TEST_F(LoadCases, Case137HeadDiffersThoughTied) {
  const TinyModel tied = model(true);
  SafetensorsWriter weights = fixtures::hf_weights(tied);
  std::vector<float> head = tied.weights.at("model.embed_tokens.weight");
  head[100] = 3.0f;
  const float difference = 3.0f - tied.weights.at("model.embed_tokens.weight")[100];
  weights.tensors.push_back({"lm_head.weight", "F32", {40, 24}, fixtures::encoded(head, "F32")});
  const std::vector<std::string> notes = open(tied, weights)->notes();
  ASSERT_EQ(notes.size(), 1u);
  const std::string marker = "lm_head.weight differs from it by up to ";
  const size_t at = notes[0].find(marker);
  ASSERT_NE(at, std::string::npos) << notes[0];
  EXPECT_FLOAT_EQ(std::stof(notes[0].substr(at + marker.size())), difference);
}

// GGUF cannot say "tied": a head that is there is the head (as Qwen2.5-Coder's files have it).
TEST_F(LoadCases, Case137HeadInGgufIsUsed) {
  const auto checkpoint = open(fixtures::gguf_model(model(false)));
  EXPECT_FALSE(checkpoint->spec().tied_embeddings);
  EXPECT_TRUE(checkpoint->has("lm_head.weight"));
  EXPECT_EQ(checkpoint->notes().back(),
            "output.weight is there and is the head, not token_embd.weight");
}

TEST_F(LoadCases, Case140TensorsOfOtherParts) {
  GgufWriter gguf = fixtures::gguf_model(model(false));
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = "v.blk." + std::to_string(layer);
    // Q2_K cannot be read, which does not matter for what nobody reads.
    gguf.tensors.push_back({prefix + ".attn_q.weight", {1, 256}, 10, std::string(84, 'v')});
    gguf.tensors.push_back({prefix + ".attn_k.weight", {1, 256}, 10, std::string(84, 'v')});
  }
  gguf.tensors.push_back({"mm.input_projection.weight", {2, 2}, 0, std::string(16, 'm')});
  const auto checkpoint = open(gguf);
  for (const auto& [name, values] : model(false).weights) {
    std::vector<float> out(values.size());
    checkpoint->read_f32(name, 0, checkpoint->shape(name)[0], out.data());
  }
  EXPECT_EQ(checkpoint->unread().size(), 7u);
  EXPECT_EQ(checkpoint->unread_by_prefix(), (std::vector<std::pair<std::string, size_t>>{
                                                {"mm.input_projection.weight", 1}, {"v.blk", 6}}));
}

}  // namespace
}  // namespace kv
