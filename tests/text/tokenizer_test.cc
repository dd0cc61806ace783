#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "kvscale/error.h"
#include "tests/text/golden.h"
#include "text/bpe.h"
#include "text/utf8.h"

namespace kv {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

Tokenizer golden_tokenizer(const std::string& name) {
  const std::string file = "tokenizer-" + name + ".json";
  return Tokenizer::from_tokenizer_json(read_golden(file), file);
}

/// Vocabulary a, b, ab, <x> and what a test changes in it.
json small_spec() {
  return json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<x>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
}

Tokenizer load(const json& spec) { return Tokenizer::from_tokenizer_json(spec.dump(), "t.json"); }

std::string refusal(const json& spec) {
  try {
    load(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string random_text(std::mt19937& rng, size_t length) {
  static const std::vector<std::string> parts = {"a",  "b",  "the",  " ",    "\n",     "\r\n", "1",
                                                 "23", "é",  "漢字", "🙂", "'s",     ".",    "  ",
                                                 "_",  "\t", "한",   "ب",    "e\u0301"};
  std::string out;
  for (size_t i = 0; i < length; ++i) out += parts[rng() % parts.size()];
  return out;
}

TEST(Tokenizer, SpecialTokensCutTheText) {
  // What surrounds a special token does not see past it: encoding is the same piece by piece.
  std::mt19937 rng(3);
  for (const std::string name : {"gpt-2", "smollm", "llama-bpe"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const int32_t end = *tokenizer.token_id("<|endoftext|>");
    for (int i = 0; i < 300; ++i) {
      const std::string left = random_text(rng, rng() % 12), right = random_text(rng, rng() % 12);
      Ids expected = tokenizer.encode(left, false);
      expected.push_back(end);
      const Ids tail = tokenizer.encode(right, false);
      expected.insert(expected.end(), tail.begin(), tail.end());
      EXPECT_EQ(tokenizer.encode(left + "<|endoftext|>" + right, false), expected)
          << name << " " << escaped(left) << " + " << escaped(right);
    }
  }
}

TEST(Tokenizer, DecodeUndoesEncodeForAnyText) {
  std::mt19937 rng(5);
  for (const std::string name : {"gpt-2", "smollm", "llama-bpe"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    for (int i = 0; i < 500; ++i) {
      std::string text;
      for (size_t n = rng() % 20; n > 0; --n) {
        const auto c = static_cast<uint32_t>(rng() % 4 ? rng() % 0x3000 : rng() % 0x110000);
        if (c < 0xD800 || c >= 0xE000) append_utf8(text, c);
      }
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text) << name << escaped(text);
    }
  }
}

TEST(Tokenizer, BytesOfIdsJoinToTheText) {
  const Tokenizer tokenizer = golden_tokenizer("gpt-2");
  const std::string text = "naïve 漢字 🙂";
  std::string joined;
  for (const int32_t id : tokenizer.encode(text)) joined += tokenizer.token_bytes(id);
  EXPECT_EQ(joined, text);
}

TEST(Tokenizer, IncompleteCharactersDecodeToReplacementCharacters) {
  const Tokenizer tokenizer = golden_tokenizer("gpt-2");
  const Ids ids = {*tokenizer.token_id("Ã"), *tokenizer.token_id("a")};  // byte C3, then a
  EXPECT_EQ(tokenizer.decode(ids), "\uFFFDa");
  EXPECT_EQ(tokenizer.token_bytes(ids[0]), "\xC3");
}

TEST(Tokenizer, BosIsAddedOnceAndOnlyWhenAsked) {
  const Tokenizer tokenizer = golden_tokenizer("llama-bpe");
  const int32_t bos = *tokenizer.token_id("<|endoftext|>");
  ASSERT_EQ(tokenizer.prefix_ids().size(), 1u);
  EXPECT_EQ(tokenizer.prefix_ids()[0], bos);
  EXPECT_TRUE(tokenizer.suffix_ids().empty());
  for (const std::string text : {"", "a", "two\nlines\n", "a b c"}) {
    const Ids with = tokenizer.encode(text), without = tokenizer.encode(text, false);
    EXPECT_EQ(std::count(with.begin(), with.end(), bos), 1) << text;
    EXPECT_EQ(with[0], bos);
    EXPECT_EQ(Ids(with.begin() + 1, with.end()), without);
  }
  // A text that spells its own BOS is encoded without adding one: exactly one either way.
  EXPECT_EQ(tokenizer.encode("<|endoftext|>a", false), tokenizer.encode("a", true));
  EXPECT_TRUE(golden_tokenizer("smollm").prefix_ids().empty());
}

TEST(Tokenizer, SpecialTokensAreLeftOutOnRequest) {
  const Tokenizer tokenizer = load(small_spec());
  EXPECT_EQ(tokenizer.encode("ab<x>a"), (Ids{2, 3, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{2, 3, 0}), "ab<x>a");
  EXPECT_EQ(tokenizer.decode(Ids{2, 3, 0}, /*skip_special=*/true), "aba");
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.token(2), "ab");
  EXPECT_EQ(tokenizer.vocab_size(), 4);
  EXPECT_EQ(tokenizer.token_id("nothing"), std::nullopt);
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreRefused) {
  const Tokenizer tokenizer = load(small_spec());
  for (const int32_t id : {-1, 4, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW(tokenizer.decode(Ids{id}), ValueError);
    EXPECT_THROW(tokenizer.token(id), ValueError);
    EXPECT_THROW(tokenizer.token_bytes(id), ValueError);
    EXPECT_THROW(tokenizer.is_special(id), ValueError);
  }
}

TEST(Tokenizer, ThreadsShareIt) {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  std::vector<Ids> expected;
  for (const std::string& text : golden_strings()) expected.push_back(tokenizer.encode(text));
  std::vector<std::vector<Ids>> found(4);
  std::vector<std::thread> threads;
  for (auto& mine : found) {
    threads.emplace_back([&] {
      for (const std::string& text : golden_strings()) mine.push_back(tokenizer.encode(text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : found) EXPECT_EQ(mine, expected);
}

/// The rule in its plainest form: again and again the leftmost pair of lowest rank.
Ids merge_plainly(const Bpe& bpe, std::string_view word) {
  Ids ids;
  for (const char c : word) ids.push_back(bpe.byte_ids[static_cast<uint8_t>(c)]);
  while (true) {
    MergeTable::Merge best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeTable::Merge merge = bpe.merges.find(ids[i], ids[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (best.rank == MergeTable::kNoRank) return ids;
    ids[at] = best.result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, ShortAndLongWordsMergeByTheSameRule) {
  // Three letters and random merges: many ties and chains, words around the length where the way of
  // merging changes.
  std::mt19937 rng(13);
  for (int round = 0; round < 60; ++round) {
    Bpe bpe;
    for (int i = 0; i < 3; ++i) bpe.byte_ids['a' + i] = i;
    bpe.merges = MergeTable(40);
    for (uint32_t rank = 0; rank < 40; ++rank) {
      const auto n = static_cast<uint32_t>(3 + rank);
      bpe.merges.insert(static_cast<int32_t>(rng() % n), static_cast<int32_t>(rng() % n),
                        {rank, static_cast<int32_t>(n)});
    }
    Bpe::Cache cache;
    for (const size_t length : {0, 1, 2, 3, 10, 24, 25, 63, 64, 65, 66, 150, 400}) {
      std::string word;
      for (size_t i = 0; i < length; ++i) word += static_cast<char>('a' + rng() % 3);
      Ids found;
      bpe.encode_word(word, cache, found);
      EXPECT_EQ(found, merge_plainly(bpe, word)) << word;
      Ids again = {7};  // appended to what is there, from the cache where the word is short
      bpe.encode_word(word, cache, again);
      EXPECT_EQ(Ids(again.begin() + 1, again.end()), found);
    }
  }
}

TEST(Tokenizer, OneLongWordIsNotQuadratic) {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  std::mt19937 rng(17);
  std::string letters;
  for (int i = 0; i < 200'000; ++i) letters += static_cast<char>('a' + rng() % 26);
  // Quadratic work would be 4 * 10^10 steps here: the test's time limit is the check.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(letters)), letters);
  const std::string spaces(1'000'000, ' '), marks = [] {
    std::string out = "a";
    for (int i = 0; i < 100'000; ++i) out += "\u0301";
    return out;
  }();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(spaces)), spaces);
  EXPECT_FALSE(tokenizer.encode(marks).empty());
}

TEST(TokenizerJson, UnservedComponentsAreRefusedByName) {
  const auto with = [](const char* key, const char* value) {
    json spec = small_spec();
    spec[key] = json::parse(value);
    return refusal(spec);
  };
  EXPECT_EQ(with("pre_tokenizer", R"({"type": "UnicodeScripts"})"),
            "t.json.pre_tokenizer: \"UnicodeScripts\" is not served; supported: Split, Digits, "
            "Metaspace, Whitespace, WhitespaceSplit, Punctuation, CharDelimiterSplit, Sequence, "
            "and ByteLevel at the end");
  EXPECT_EQ(with("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Nmt"}]})"),
            "t.json.normalizer.normalizers[0]: \"Nmt\" is not served; supported: NFC, NFD, NFKC, "
            "NFKD, Lowercase, Prepend, Replace, Strip, Sequence");
  EXPECT_EQ(with("model", R"({"type": "Unigram", "vocab": []})"),
            "t.json.model.type: \"Unigram\" is not served; supported: BPE");
  EXPECT_EQ(with("decoder", R"({"type": "WordPiece"})"),
            "t.json.decoder: \"WordPiece\" is not served; supported: ByteLevel, Replace, "
            "ByteFallback, Fuse, Strip, Metaspace, Sequence");
  EXPECT_EQ(with("decoder", "null"),
            "t.json.decoder: \"null\" is not served; supported: ByteLevel, Replace, ByteFallback, "
            "Fuse, Strip, Metaspace, Sequence");
  EXPECT_EQ(with("post_processor", R"({"type": "BertProcessing"})"),
            "t.json.post_processor: \"BertProcessing\" is not served; supported: ByteLevel, "
            "TemplateProcessing, Sequence");
  EXPECT_NE(with("pre_tokenizer",
                 R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel",
            "add_prefix_space": true}, {"type": "Digits", "individual_digits": true}]})")
                .find("t.json.pre_tokenizer.pretokenizers[0]: \"ByteLevel\" is not served"),
            std::string::npos);
  EXPECT_EQ(with("pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})"),
            "t.json.pre_tokenizer.replacement: expected one character, found string");
  EXPECT_EQ(with("pre_tokenizer",
                 R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"),
            "t.json.pre_tokenizer.prepend_scheme: expected always, first or never, found \"last\"");
  EXPECT_EQ(with("normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})"),
            "t.json.normalizer.pattern.String: expected a text that is not empty, found string");
}

// A file without a pre-tokenizer is one over characters.
TEST(TokenizerJson, NoPreTokenizerLeavesTextsWhole) {
  json spec = small_spec();
  spec["pre_tokenizer"] = nullptr;
  spec["model"]["vocab"]["\u00e9"] = 3;
  spec["added_tokens"][0]["id"] = 4;
  EXPECT_EQ(load(spec).encode("ab\u00e9a<x>"), (Ids{2, 3, 0, 4}));
}

TEST(TokenizerJson, FlagsOfTheModelThatChangeIdsAreRefused) {
  for (const auto& [key, value] : std::map<std::string, json>{
           {"dropout", 0.1}, {"continuing_subword_prefix", "##"}, {"end_of_word_suffix", "</w>"}}) {
    json spec = small_spec();
    spec["model"][key] = value;
    EXPECT_EQ(refusal(spec), fmt::format("t.json.model.{}: \"{}\" is not served; supported: none",
                                         key, value.dump()));
    spec["model"][key] = nullptr;
    EXPECT_EQ(refusal(spec), "no error");
  }
}

TEST(TokenizerJson, BytesToFallBackOnNeedAllBytesBesideByteLevel) {
  json spec = small_spec();
  spec["model"]["byte_fallback"] = true;
  EXPECT_EQ(refusal(spec),
            "t.json: model.byte_fallback with ByteLevel over a vocabulary without some bytes is "
            "not served");
}

TEST(TokenizerJson, ContradictionsAreRefusedWithBothSides) {
  json spec = small_spec();
  spec["model"]["merges"] = json::parse(R"([["a", "c"]])");
  EXPECT_EQ(refusal(spec), "t.json: merges[0]: \"c\" is not in the vocabulary");
  spec = small_spec();
  spec["model"]["merges"] = json::parse(R"(["a b c"])");
  EXPECT_EQ(refusal(spec),
            "t.json.model.merges[0]: expected two tokens and one space, found \"a b c\"");
  spec = small_spec();
  spec["model"]["vocab"]["ab"] = 1;
  EXPECT_EQ(refusal(spec), "t.json.model.vocab: id 1 has two tokens, \"ab\" and \"b\"");
  spec = small_spec();
  spec["model"]["vocab"]["ab"] = 2'000'000'000;
  EXPECT_EQ(refusal(spec),
            "t.json.model.vocab: \"ab\": expected an id below 65542 for a vocabulary of 3, "
            "found 2000000000");
  spec = small_spec();
  spec["model"]["vocab"]["ab"] = -1;
  EXPECT_EQ(refusal(spec),
            "t.json.model.vocab: expected a token id (0 to 2147483646), found number");
  spec = small_spec();
  spec["added_tokens"][0]["id"] = 7;
  EXPECT_EQ(refusal(spec),
            "t.json.added_tokens[0].id: \"<x>\": expected 3 (the next one), found 7");
  spec["added_tokens"][0]["content"] = "ab";
  EXPECT_EQ(refusal(spec),
            "t.json.added_tokens[0].id: \"ab\": expected 2 (from the vocabulary), found 7");
  spec = small_spec();
  spec["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(refusal(spec), "t.json: unk_token: \"<unk>\" is not in the vocabulary");
  spec = small_spec();
  spec["model"].erase("vocab");
  EXPECT_EQ(refusal(spec), "t.json.model: \"vocab\" is missing");
}

TEST(TokenizerJson, TemplateIdsMustExist) {
  json spec = small_spec();
  spec["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "<x>", "type_id": 0}}],
      "special_tokens": {"<x>": {"id": "<x>", "ids": [3], "tokens": ["<x>"]}}})");
  EXPECT_EQ(load(spec).encode("ab"), (Ids{3, 2, 3}));
  EXPECT_EQ(load(spec).encode("ab", false), (Ids{2}));
  spec["post_processor"]["special_tokens"]["<x>"]["ids"][0] = 9;
  EXPECT_EQ(refusal(spec), "t.json: token id 9 is outside the vocabulary of 4 tokens");
}

TEST(TokenizerJson, BothSpellingsOfMergesAreTheSame) {
  json spec = small_spec();
  spec["model"]["merges"] = json::parse(R"(["#version: 0.2", "a b"])");
  EXPECT_EQ(load(spec).encode("ab"), (Ids{2}));
  EXPECT_EQ(load(spec).fingerprint(), load(small_spec()).fingerprint());
}

TEST(TokenizerJson, TheFingerprintCoversWhatDecidesIds) {
  const std::string base = load(small_spec()).fingerprint();
  EXPECT_EQ(base.size(), 64u);
  const std::vector<std::pair<const char*, const char*>> changes = {
      {"/pre_tokenizer/add_prefix_space", "true"},
      {"/normalizer", R"({"type": "NFC"})"},
      {"/normalizer", R"({"type": "NFD"})"},
      {"/normalizer", R"({"type": "Prepend", "prepend": "b"})"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_"})"},
      {"/model/ignore_merges", "true"},
      {"/model/merges", "[]"},
      {"/model/unk_token", "\"a\""},
      {"/added_tokens/0/rstrip", "true"},
      {"/added_tokens/0/content", "\"<y>\""}};
  for (const auto& [where, value] : changes) {
    json spec = small_spec();
    spec[json::json_pointer(where)] = json::parse(value);
    EXPECT_NE(load(spec).fingerprint(), base) << where;
  }
  json spec = small_spec();
  spec["decoder"]["trim_offsets"] = false;
  spec["truncation"] = json::parse(R"({"max_length": 5})");
  EXPECT_EQ(load(spec).fingerprint(), base);
  EXPECT_EQ(load(spec).encode("aaaaaaaa").size(), 8u);  // truncation is another tool's setting
}

GgufVocab small_gguf() {
  GgufVocab vocab;
  vocab.file_name = "t.gguf";
  vocab.model = "gpt2";
  vocab.pre = "smollm";
  vocab.tokens = {"a", "b", "ab", "<x>", "<y>"};
  vocab.types = {1, 1, 1, 3, 4};
  vocab.merges = {"a b"};
  vocab.bos_id = 3;
  vocab.eos_id = 4;
  return vocab;
}

std::string gguf_refusal(const std::function<void(GgufVocab&)>& change) {
  GgufVocab vocab = small_gguf();
  change(vocab);
  try {
    Tokenizer::from_gguf(vocab);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerGguf, BosAndEosFollowTheFile) {
  GgufVocab vocab = small_gguf();
  EXPECT_EQ(Tokenizer::from_gguf(vocab).encode("ab<y>"), (Ids{2, 4}));
  EXPECT_EQ(Tokenizer::from_gguf(vocab).bos_id(), 3);
  EXPECT_EQ(Tokenizer::from_gguf(vocab).eos_id(), 4);
  EXPECT_FALSE(Tokenizer::from_gguf(vocab).is_special(4));
  vocab.add_bos = vocab.add_eos = true;
  EXPECT_EQ(Tokenizer::from_gguf(vocab).encode("ab"), (Ids{3, 2, 4}));
  vocab.add_bos = vocab.add_eos = std::nullopt;
  vocab.pre = "llama-bpe";
  EXPECT_EQ(Tokenizer::from_gguf(vocab).encode("ab"), (Ids{3, 2}));
  vocab.add_bos = false;
  EXPECT_EQ(Tokenizer::from_gguf(vocab).encode("ab"), (Ids{2}));
}

TEST(TokenizerGguf, WhatIsNotServedIsNamed) {
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.model = "t5"; }),
            "t.gguf: tokenizer.ggml.model = \"t5\" is not served; supported: gpt2 (byte-level "
            "BPE), llama (SentencePiece)");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.model = "llama"; }),
            "t.gguf: tokenizer.ggml.scores: expected 5 entries (tokenizer.ggml.tokens), found 0");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) {
              v.model = "llama";
              v.scores = {0, 0, 0, 0, std::nanf("")};
            }),
            "t.gguf: tokenizer.ggml.scores[4]: expected a number, found NaN");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.pre = "tekken"; }),
            "t.gguf: tokenizer.ggml.pre = \"tekken\" is not served; supported: smollm, qwen2, "
            "llama-bpe, gpt-2, default");
  EXPECT_EQ(
      gguf_refusal([](GgufVocab& v) { v.types.pop_back(); }),
      "t.gguf: tokenizer.ggml.token_type: expected 5 entries (tokenizer.ggml.tokens), found 4");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.merges = {"ab"}; }),
            "t.gguf: tokenizer.ggml.merges[0]: expected two tokens and one space, found \"ab\"");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.tokens[1] = "\xff"; }),
            "t.gguf: tokenizer.ggml.tokens[1] is not UTF-8");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.tokens[1] = "a"; }),
            "t.gguf: token \"a\" has two ids, 0 and 1");
  EXPECT_EQ(gguf_refusal([](GgufVocab& v) { v.bos_id = 5; }),
            "t.gguf: token id 5 is outside the vocabulary of 5 tokens");
  EXPECT_EQ(
      gguf_refusal([](GgufVocab& v) {
        v.add_bos = true;
        v.bos_id.reset();
      }),
      "t.gguf: tokenizer.ggml.bos_token_id is missing, but the file asks for this token around "
      "every text");
}

}  // namespace
}  // namespace kv
