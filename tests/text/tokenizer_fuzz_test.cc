// Damaged tokenizer files: each either loads and can be used, or gives one kv::Error.
#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "tests/text/golden.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

using nlohmann::json;

struct Outcome {
  int loaded = 0, refused = 0;
};

const std::string kProbe =
    "The don't 123 e\u0301 漢字 🙂 <|endoftext|> <tool_call>\xff word\r\n\n  x";

void use(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode(kProbe);
  tokenizer.decode(ids);
  for (const int32_t id : ids) ASSERT_LT(id, tokenizer.vocab_size());
}

void try_load(const std::string& text, Outcome& outcome) {
  try {
    use(Tokenizer::from_tokenizer_json(text, "mutant.json"));
    ++outcome.loaded;
  } catch (const Error&) {
    ++outcome.refused;
  }
}

/// A tokenizer.json small enough to be loaded thousands of times, with every component in it.
json rich_spec() {
  json spec = load_golden("tokenizer-qwen2.json");
  json vocab, merges = json::array();
  for (const auto& [token, id] : spec["model"]["vocab"].items()) {
    if (id.get<int>() < 300) vocab[token] = id;
  }
  for (const json& merge : spec["model"]["merges"]) {
    if (vocab.contains(merge[0].get<std::string>() + merge[1].get<std::string>()))
      merges.push_back(merge);
  }
  spec["model"]["vocab"] = vocab;
  spec["model"]["merges"] = merges;
  int next = static_cast<int>(vocab.size());
  for (json& added : spec["added_tokens"]) added["id"] = next++;
  json& steps = spec["pre_tokenizer"]["pretokenizers"];
  steps.insert(steps.begin(), json::object({{"type", "Digits"}, {"individual_digits", false}}));
  spec["post_processor"] = load_golden("tokenizer-llama-bpe.json")["post_processor"];
  spec["post_processor"]["processors"][1]["special_tokens"]["<|endoftext|>"]["ids"][0] = 0;
  return spec;
}

/// Another over characters, with the components that the first one has not.
json character_spec() {
  json spec = load_golden("tokenizer-llama-2.json");
  json vocab, merges = json::array();
  for (const auto& [token, id] : spec["model"]["vocab"].items()) {
    if (id.get<int>() < 330) vocab[token] = id;
  }
  for (const json& merge : spec["model"]["merges"]) {
    const std::string left = merge[0], right = merge[1];
    if (vocab.contains(left) && vocab.contains(right) && vocab.contains(left + right)) {
      merges.push_back(merge);
    }
  }
  spec["model"]["vocab"] = vocab;
  spec["model"]["merges"] = merges;
  spec["normalizer"]["normalizers"].push_back(
      json::parse(R"({"type": "Strip", "strip_left": true, "strip_right": true})"));
  spec["normalizer"]["normalizers"].push_back(json::parse(R"({"type": "NFKC"})"));
  spec["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": false},
      {"type": "Punctuation", "behavior": "Isolated"}]})");
  return spec;
}

TEST(TokenizerFuzz, TheUndamagedFilesLoad) {
  Outcome outcome;
  try_load(rich_spec().dump(), outcome);
  try_load(character_spec().dump(), outcome);
  EXPECT_EQ(outcome.loaded, 2);
}

TEST(TokenizerFuzz, DamagedBytes) {
  const std::string originals[] = {rich_spec().dump(), character_spec().dump()};
  std::mt19937 rng(2024);
  Outcome outcome;
  for (int i = 0; i < 2000; ++i) {
    const std::string& original = originals[i % 2];
    std::string text = original;
    for (int n = 1 + static_cast<int>(rng() % 3); n > 0; --n) {
      const size_t at = rng() % text.size();
      switch (rng() % 5) {
        case 0:
          text[at] = static_cast<char>(rng() % 256);
          break;
        case 1:
          text.erase(at, 1 + rng() % 8);
          break;
        case 2:
          text.insert(at, original.substr(rng() % original.size(), 1 + rng() % 16));
          break;
        case 3:
          text[at] = "0123456789\"\\{}[],:.-eE+"[rng() % 23];
          break;
        default:
          if (rng() % 10 == 0) text.resize(at);
          text += ' ';
      }
      if (text.empty()) break;
    }
    try_load(text, outcome);
  }
  EXPECT_GT(outcome.loaded, 100);  // both ways are walked
  EXPECT_GT(outcome.refused, 100);
}

/// Pointers to every value of the document but the entries of the vocabulary and the merges, of
/// which a few stand for all.
std::vector<json::json_pointer> places_of(const json& spec) {
  std::vector<json::json_pointer> out;
  int vocab = 0, merges = 0;
  const json flat = spec.flatten();
  for (const auto& [path, value] : flat.items()) {
    if (path.starts_with("/model/vocab/") && ++vocab > 20) continue;
    if (path.starts_with("/model/merges/") && ++merges > 20) continue;
    for (json::json_pointer at(path); !at.empty(); at = at.parent_pointer()) out.push_back(at);
  }
  return out;
}

TEST(TokenizerFuzz, ValuesOfOtherTypesAndSizes) {
  const json originals[] = {rich_spec(), character_spec()};
  const std::vector<json::json_pointer> all_places[] = {places_of(originals[0]),
                                                        places_of(originals[1])};
  const std::vector<json> values = {nullptr,
                                    true,
                                    false,
                                    0,
                                    1,
                                    -1,
                                    2147483647,
                                    4294967296,
                                    1e300,
                                    -0.5,
                                    "",
                                    "x",
                                    "Sequence",
                                    "ByteLevel",
                                    "NFC",
                                    "Metaspace",
                                    "Replace",
                                    "Strip",
                                    "<|endoftext|>",
                                    json::array(),
                                    json::object(),
                                    json::array({"a", "b"}),
                                    {{"type", "Split"}},
                                    {{"Regex", "(a*)*b"}},
                                    {{"Regex", "[^"}},
                                    {{"String", ""}},
                                    {{"String", "e"}}};
  std::mt19937 rng(2025);
  Outcome outcome;
  for (int i = 0; i < 1500; ++i) {
    const json& original = originals[i % 2];
    const std::vector<json::json_pointer>& places = all_places[i % 2];
    json spec = original;
    const json::json_pointer& at = places[rng() % places.size()];
    json& parent = spec[at.parent_pointer()];
    if (rng() % 4 == 0 && parent.is_object()) {
      parent.erase(at.back());
    } else if (rng() % 4 == 0) {
      spec[at] = original[places[rng() % places.size()]];
    } else {
      spec[at] = values[rng() % values.size()];
    }
    try_load(spec.dump(), outcome);
  }
  EXPECT_GT(outcome.loaded, 100);
  EXPECT_GT(outcome.refused, 100);
}

TEST(TokenizerFuzz, DamagedPatterns) {
  const json original = rich_spec();
  const json::json_pointer where("/pre_tokenizer/pretokenizers/1/pattern/Regex");
  const std::string pattern = original[where].get<std::string>();
  std::mt19937 rng(2026);
  Outcome outcome;
  for (int i = 0; i < 600; ++i) {
    std::string text = pattern;
    for (int n = 1 + static_cast<int>(rng() % 3); n > 0; --n) {
      const size_t at = rng() % text.size();
      if (rng() % 2) {
        text[at] = "()[]{}*+?|\\^$.-:=!<>ipPLsdDSuxK,1"[rng() % 33];
      } else {
        text.insert(at, pattern.substr(rng() % pattern.size(), 1 + rng() % 6));
      }
    }
    json spec = original;
    spec[where] = text;
    try_load(spec.dump(), outcome);
  }
  EXPECT_GT(outcome.loaded, 100);
  EXPECT_GT(outcome.refused, 100);
}

}  // namespace
}  // namespace kv
