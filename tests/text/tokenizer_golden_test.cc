// Ids that the `tokenizers` package gave for a few hundred strings, with small vocabularies of
// every family.
#include <gtest/gtest.h>

#include "tests/text/golden.h"
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace kv {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  std::string file() const { return "tokenizer-" + GetParam() + ".json"; }
  Tokenizer tokenizer_ = Tokenizer::from_tokenizer_json(read_golden(file()), file());
  json golden_ = load_golden("ids-" + GetParam() + ".json");
};

TEST_P(TokenizerGolden, IdsAreThoseOfThePeer) {
  const auto& strings = golden_strings();
  ASSERT_EQ(golden_["ids"].size(), strings.size());
  for (size_t i = 0; i < strings.size(); ++i) {
    EXPECT_EQ(tokenizer_.encode(strings[i]), golden_["ids"][i].get<Ids>())
        << "string " << i << ": " << escaped(strings[i]);
  }
}

TEST_P(TokenizerGolden, DecodedTextIsThatOfThePeer) {
  for (size_t i = 0; i < golden_["ids"].size(); ++i) {
    EXPECT_EQ(tokenizer_.decode(golden_["ids"][i].get<Ids>(), /*skip_special=*/true),
              golden_["decoded"][i].get<std::string>())
        << "string " << i;
  }
}

TEST_P(TokenizerGolden, DecodeUndoesEncode) {
  // "gaps" loses bytes that its vocabulary lacks, as the peer does; tokens that strip lose spaces.
  if (GetParam() == "gaps" || GetParam() == "qwen2") GTEST_SKIP() << "lossy by its own file";
  for (const std::string& text : golden_strings()) {
    if (well_formed_prefix(text) != text.size()) continue;
    EXPECT_EQ(tokenizer_.decode(tokenizer_.encode(text, /*add_special=*/false)), text)
        << escaped(text);
  }
}

TEST_P(TokenizerGolden, SecondCallGivesTheSame) {  // words come from the cache now
  for (const std::string& text : golden_strings()) {
    const Ids first = tokenizer_.encode(text);
    EXPECT_EQ(tokenizer_.encode(text), first) << escaped(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGolden,
                         testing::Values("gpt-2", "smollm", "llama-bpe", "qwen2", "gaps"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TokenizerVariants, OtherPreTokenizersCutAsThePeerDoes) {
  const auto& strings = golden_strings();
  size_t variants = 0;
  for (const json& variant : load_golden("variants.json")) {
    json spec = load_golden("tokenizer-" + variant["base"].get<std::string>() + ".json");
    for (const auto& [key, value] : variant["change"].items()) {
      if (key == "model") {
        spec[key].update(value);
      } else {
        spec[key] = value;
      }
    }
    const Tokenizer tokenizer = Tokenizer::from_tokenizer_json(spec.dump(), "variant.json");
    for (size_t i = 0; i < variant["ids"].size(); ++i) {
      EXPECT_EQ(tokenizer.encode(strings[7 * i]), variant["ids"][i].get<Ids>())
          << variant["change"].dump() << "\nstring " << 7 * i << ": " << escaped(strings[7 * i]);
    }
    ++variants;
  }
  EXPECT_GE(variants, 40u);
}

/// The tokenizer.json's content as the keys of a GGUF file, as its converters write them.
GgufVocab as_gguf(const std::string& name) {
  const json spec = load_golden("tokenizer-" + name + ".json");
  GgufVocab vocab;
  vocab.file_name = name + ".gguf";
  vocab.model = "gpt2";
  vocab.pre = name;
  std::map<int32_t, std::string> tokens;
  for (const auto& [token, id] : spec["model"]["vocab"].items()) tokens[id.get<int32_t>()] = token;
  std::map<int32_t, int32_t> types;
  for (const json& added : spec["added_tokens"]) {
    tokens[added["id"].get<int32_t>()] = added["content"].get<std::string>();
    types[added["id"].get<int32_t>()] = added["special"].get<bool>() ? 3 : 4;
  }
  for (const auto& [id, token] : tokens) {
    vocab.tokens.push_back(token);
    vocab.types.push_back(types.count(id) ? types[id] : 1);
  }
  for (const json& merge : spec["model"]["merges"]) {
    vocab.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  vocab.bos_id = 1400;
  return vocab;
}

TEST(TokenizerGguf, SameIdsAsTheTokenizerJsonOfTheFamily) {
  for (const std::string name : {"gpt-2", "smollm", "llama-bpe"}) {
    const Tokenizer tokenizer = Tokenizer::from_gguf([&] {
      GgufVocab vocab = as_gguf(name);
      if (name == "smollm") vocab.bos_id = 1;
      return vocab;
    }());
    const json golden = load_golden("ids-" + name + ".json");
    const auto& strings = golden_strings();
    for (size_t i = 0; i < strings.size(); ++i) {
      EXPECT_EQ(tokenizer.encode(strings[i]), golden["ids"][i].get<Ids>())
          << name << " string " << i << ": " << escaped(strings[i]);
    }
  }
}

TEST(TokenizerGguf, Qwen2NormalizesToNfc) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(as_gguf("qwen2"));
  EXPECT_EQ(tokenizer.encode("e\u0301 a\u0323\u0301"), tokenizer.encode("\u00e9 \u1ea1\u0301"));
  EXPECT_EQ(to_nfc("e\u0301"), "\u00e9");
}

}  // namespace
}  // namespace kv
