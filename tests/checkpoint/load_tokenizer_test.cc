#include "checkpoint/load_tokenizer.h"

#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using fixtures::GgufWriter;

// 36 visible characters, the space, and "ab" merged from two of them; ids 0 to 2 are special.
const std::vector<std::string> kSpecial = {"<|end|>", "<s>", "</s>"};

std::vector<std::string> tiny_tokens() {
  std::vector<std::string> tokens = kSpecial;
  for (char c = 'A'; c <= 'Z'; ++c) tokens.emplace_back(1, c);
  for (const char c : std::string("abcdefgh")) tokens.emplace_back(1, c);
  tokens.push_back("\xc4\xa0");  // how byte-level BPE spells a space
  tokens.push_back("ab");
  return tokens;
}

class LoadTokenizer : public testing::Test {
 protected:
  GgufWriter gguf() const {
    GgufWriter writer = fixtures::gguf_model(model_);
    std::vector<int32_t> types(tiny_tokens().size(), 1);
    types[0] = types[1] = types[2] = 3;
    writer.set_text("tokenizer.ggml.model", "gpt2").set_text("tokenizer.ggml.pre", "qwen2");
    writer.set_texts("tokenizer.ggml.tokens", tiny_tokens());
    writer.set_integers("tokenizer.ggml.token_type", types);
    writer.set_texts("tokenizer.ggml.merges", {"a b"});
    return writer;
  }
  Tokenizer load(const GgufWriter& writer) {
    fixtures::write_file(folder_ / "tiny.gguf", writer.bytes());
    return load_tokenizer(*Checkpoint::open(folder_ / "tiny.gguf"));
  }
  void write_tokenizer_json() {
    std::string vocab;
    const std::vector<std::string> tokens = tiny_tokens();
    for (size_t id = 0; id < tokens.size(); ++id) {
      vocab += (vocab.empty() ? "\"" : ",\"") + tokens[id] + "\":" + std::to_string(id);
    }
    fixtures::write_file(
        folder_ / "tokenizer.json",
        R"({"version":"1.0","added_tokens":[{"id":0,"content":"<|end|>","single_word":false,)"
        R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,)"
        R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
        R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},"model":)"
        R"({"type":"BPE","merges":[["a","b"]],"vocab":{)" +
            vocab + "}}}");
  }

  const fixtures::TinyModel model_ = fixtures::make_tiny_model(fixtures::tiny_spec(), 1);
  fixtures::ScratchFolder folder_;
};

const std::vector<int32_t> kIds = {38, 37, 31, 0};  // "ab" " " "c" "<|end|>"

TEST_F(LoadTokenizer, FromGguf) {
  const Tokenizer tokenizer = load(gguf());
  EXPECT_EQ(tokenizer.encode("ab c<|end|>"), kIds);
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.vocab_size(), 39);
}

TEST_F(LoadTokenizer, FromGgufWithBos) {
  GgufWriter writer = gguf();
  writer.set_bool("tokenizer.ggml.add_bos_token", true);
  const Tokenizer tokenizer = load(writer);
  EXPECT_EQ(tokenizer.encode("ab"), (std::vector<int32_t>{1, 38}));
  EXPECT_EQ(tokenizer.encode("ab", false), (std::vector<int32_t>{38}));
}

TEST_F(LoadTokenizer, FromDirectory) {
  fixtures::write_hf_model(folder_.path(), model_);
  const auto checkpoint = Checkpoint::open(folder_.path());
  EXPECT_THROW(load_tokenizer(*checkpoint), IoError);
  write_tokenizer_json();
  EXPECT_EQ(load_tokenizer(*checkpoint).encode("ab c<|end|>"), kIds);
  const auto by_file = Checkpoint::open(folder_ / "model.safetensors");
  EXPECT_EQ(load_tokenizer(*by_file).encode("ab c<|end|>"), kIds);
}

TEST_F(LoadTokenizer, SpecialTokensForTemplates) {
  GgufWriter writer = gguf();
  fixtures::write_file(folder_ / "tiny.gguf", writer.bytes());
  const auto by_gguf = Checkpoint::open(folder_ / "tiny.gguf");
  EXPECT_EQ(load_special_tokens(*by_gguf, load_tokenizer(*by_gguf)),
            (SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  fixtures::write_hf_model(folder_.path(), model_);
  write_tokenizer_json();
  const auto checkpoint = Checkpoint::open(folder_.path());
  const Tokenizer tokenizer = load_tokenizer(*checkpoint);
  EXPECT_TRUE(load_special_tokens(*checkpoint, tokenizer).empty());
  fixtures::write_file(folder_ / "tokenizer_config.json",
                       R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",)"
                       R"("pad_token": null})");
  EXPECT_EQ(load_special_tokens(*checkpoint, tokenizer),
            (SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  fixtures::write_file(folder_ / "tokenizer_config.json", R"({"bos_token": 7})");
  EXPECT_THROW(load_special_tokens(*checkpoint, tokenizer), FormatError);
}

TEST_F(LoadTokenizer, IdsMustHaveRowsInTheEmbedding) {
  ModelSpec spec = model_.spec;
  spec.vocab_size = 38;
  fixtures::write_hf_model(folder_.path(), fixtures::make_tiny_model(spec, 1));
  write_tokenizer_json();
  const auto checkpoint = Checkpoint::open(folder_.path());
  try {
    load_tokenizer(*checkpoint);
    ADD_FAILURE() << "loaded";
  } catch (const FormatError& error) {
    EXPECT_EQ(error.what(),
              folder_.path().string() + ": the tokenizer has ids up to 38, the embedding 38 rows");
  }
}

TEST_F(LoadTokenizer, OtherModelsAreRefused) {
  GgufWriter writer = gguf();
  writer.set_text("tokenizer.ggml.model", "t5");
  EXPECT_THROW(load(writer), UnsupportedError);
  writer = gguf();
  writer.set_text("tokenizer.ggml.model", "llama");
  EXPECT_THROW(load(writer), FormatError);  // without scores
  writer.set_text("tokenizer.ggml.scores", "no list");
  EXPECT_THROW(load(writer), FormatError);
  writer = gguf();
  writer.set_text("tokenizer.ggml.token_type", "no list");
  EXPECT_THROW(load(writer), FormatError);
}

}  // namespace
}  // namespace kv
