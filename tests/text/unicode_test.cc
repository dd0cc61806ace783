// Whole domains: every code point of every character class, normalization and repair of ill-formed
// text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/text/golden.h"
#include "text/byte_alphabet.h"
#include "text/normal_form.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"
#include "text/regex_dialect.h"
#include "text/sha256.h"
#include "text/unicode_additions.h"
#include "text/utf8.h"

namespace kv {
namespace {

std::vector<uint32_t> all_code_points() {
  std::vector<uint32_t> out;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) out.push_back(c);
  }
  return out;
}

/// The code points that a pattern of one class matches.
std::vector<bool> members_of(const Regex& regex, const std::string& all) {
  std::vector<bool> member(0x110000);
  RegexMatcher(regex).for_each_segment(all, [&](Segment s) {
    for (std::string_view rest = std::string_view(all).substr(s.begin, s.end - s.begin);
         !rest.empty();) {
      const CodePoint c = first_code_point(rest);
      member[c.value] = s.is_match;
      rest.remove_prefix(c.size);
    }
  });
  return member;
}

TEST(Unicode, ClassesHoldWhatThePeerHolds) {
  std::string all;
  for (const uint32_t c : all_code_points()) append_utf8(all, c);
  const nlohmann::json golden = load_golden("classes.json");
  for (const auto& [name, ranges] : golden.items()) {
    const std::string pattern = name == "Digits" ? "[" + digit_class_items() + "]"
                                : name.size() == 1 && name[0] >= 'a'
                                    ? to_pcre2("\\" + name, "test")
                                    : to_pcre2("\\p{" + name + "}", "test");
    std::vector<bool> expected(0x110000);
    for (const auto& range : ranges) {
      for (uint32_t c = range[0]; c <= range[1].get<uint32_t>(); ++c) expected[c] = true;
    }
    const std::vector<bool> found = members_of(Regex(pattern, "test"), all);
    size_t differing = 0;
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (found[c] != expected[c] && ++differing < 5)
        ADD_FAILURE() << name << fmt::format(" U+{:04X}", c);
    }
    EXPECT_EQ(differing, 0u) << name;
  }
  EXPECT_GE(golden.size(), 20u);
}

using Normalize = std::function<std::string(std::string_view)>;

/// Every code point between two texts, normalized, against the peer's digest.
void expect_digests(const std::string& name, const Normalize& normalize, size_t num_probes,
                    uint32_t end) {
  const std::vector<std::pair<std::string, std::string>> probes = {
      {"", ""},       {"a", "\u0301\u0323\u0334"}, {"a\u0323", "\u0327"}, {"\u1100", "\u11a8"},
      {"", "\u3099"}, {"\U00011935", ""}};
  const nlohmann::json golden = load_golden("digests.json")[name];
  ASSERT_EQ(golden.size(), num_probes);
  for (size_t i = 0; i < num_probes; ++i) {
    Sha256 hash;
    for (const uint32_t c : all_code_points()) {
      if (c >= (i == 0 ? end : 0x20000)) break;  // above it nothing combines
      std::string text = probes[i].first;
      append_utf8(text, c);
      hash.add(normalize(text + probes[i].second));
      hash.add(std::string_view("\0", 1));
    }
    EXPECT_EQ(hash.hex(), golden[i].get<std::string>()) << name << " probe " << i;
  }
}

TEST(Unicode, NfcOfEveryCodePointInContextIsThePeers) {
  expect_digests("nfc", to_nfc, 6, 0x110000);
}

TEST(Unicode, OtherFormsOfEveryCodePointAreThePeers) {
  for (const auto& [name, form] : {std::pair{"NFD", NormalForm::kNfd},
                                   {"NFKC", NormalForm::kNfkc},
                                   {"NFKD", NormalForm::kNfkd}}) {
    expect_digests(
        name, [&](std::string_view text) { return to_normal_form(text, form); }, 2, 0x30000);
  }
  expect_digests("Lowercase", lowercased, 2, 0x30000);
}

TEST(Unicode, NfcOfALongTextIsThatOfItsParts) {
  std::string text, expected;
  for (int i = 0; i < 1000; ++i) {
    text += "a\u0301 x\u0308\u0301\u0323 \u1100\u1161 \u304b\u3099\u0898\u0301";
    expected += "\u00e1 \u1e8d\u0323\u0301 \uac00 \u304c\u0898\u0301";
  }
  // x, dot below (220), diaeresis, acute: the diaeresis composes past the dot.
  EXPECT_EQ(to_nfc(text), expected);
}

template <class Make>
std::string repair_digest(size_t n, const Make& make) {
  Sha256 hash;
  for (size_t i = 0; i < n; ++i) {
    const std::string repaired = replace_ill_formed(make(i));
    EXPECT_EQ(well_formed_prefix(repaired), repaired.size());
    hash.add(repaired);
    hash.add(std::string_view("\0", 1));
  }
  return hash.hex();
}

TEST(Utf8, IllFormedTextIsRepairedAsPythonDoes) {
  const nlohmann::json golden = load_golden("digests.json");
  EXPECT_EQ(repair_digest(65536,
                          [](size_t i) {
                            return std::string{static_cast<char>(i >> 8), static_cast<char>(i)};
                          }),
            golden["two_bytes"].get<std::string>());
  const std::array<uint8_t, 24> edges = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                         0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED,
                                         0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  EXPECT_EQ(repair_digest(24 * 24 * 24 * 24,
                          [&](size_t i) {
                            std::string text;
                            for (const size_t unit : {24 * 24 * 24, 24 * 24, 24, 1}) {
                              text += static_cast<char>(edges[i / unit % 24]);
                            }
                            return text;
                          }),
            golden["four_edges"].get<std::string>());
}

TEST(Utf8, EveryCodePointSurvivesWritingAndReading) {
  for (const uint32_t c : all_code_points()) {
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(well_formed_prefix(text), text.size()) << c;
    ASSERT_EQ(first_code_point(text).value, c);
    ASSERT_EQ(first_code_point(text).size, text.size());
  }
}

TEST(ByteAlphabet, EveryByteHasItsOwnCharacter) {
  std::map<uint32_t, int> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t c = spell_byte(static_cast<uint8_t>(byte));
    EXPECT_EQ(seen.count(c), 0u) << byte;
    seen[c] = byte;
    EXPECT_EQ(spelled_byte(c), byte);
  }
  EXPECT_EQ(spell_byte(' '), 0x120u);
  EXPECT_EQ(spell_byte('\n'), 0x10Au);
  EXPECT_EQ(spell_byte(0xAD), 0x143u);  // the last of the 68
  EXPECT_EQ(spelled_byte(' '), std::nullopt);
  EXPECT_EQ(spelled_byte(0x144), std::nullopt);
  EXPECT_EQ(spelled_bytes("Ġthe"), " the");
  EXPECT_EQ(spelled_bytes("日"), std::nullopt);
}

TEST(Sha256, KnownDigestsAndFieldsThatDoNotRunTogether) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 a, b;
  a.add_field("ab");
  a.add_field("c");
  b.add_field("a");
  b.add_field("bc");
  EXPECT_NE(a.hex(), b.hex());
}

}  // namespace
}  // namespace kv
