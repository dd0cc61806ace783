// How arms are spelled.

#include <gtest/gtest.h>

#include "engine/arm.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr ArmLayout kLayouts[] = {ArmLayout::kBf16, ArmLayout::kFp8Scale1, ArmLayout::kFp8Tensor,
                                  ArmLayout::kFp8Head, ArmLayout::kFp8TokenHead};

std::string message_of(std::string_view text) {
  try {
    ArmSpec::parse(text);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ArmSpec, EveryCombinationOfPartsIsReadBack) {
  const std::vector<std::vector<Bf16Side>> kept = {
      {}, {{0}}, {{0}, {3, true, false}, {7, false, true}}, {{2, false, true}, {1023}}};
  int combinations = 0;
  for (const ArmLayout layout : kLayouts) {
    if (layout == ArmLayout::kBf16) continue;
    for (const auto& bf16 : kept) {
      for (const Math math : {Math::kBf16, Math::kFp8}) {
        for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
          for (const char* file : {"", "a.json", "/data/run 1/x=y/scales=2.json"}) {
            ArmSpec arm{layout, bf16, math, rounding, file};
            if (!arm.needs_scales() && !arm.scale_file.empty()) continue;
            EXPECT_EQ(ArmSpec::parse(arm.text()), arm) << arm.text();
            EXPECT_EQ(ArmSpec::parse(arm.text()).text(), arm.text());
            ++combinations;
          }
        }
      }
    }
  }
  EXPECT_EQ(combinations, 4 * 2 * 2 * (2 + 2 * 3));
  EXPECT_EQ(ArmSpec::parse("bf16"), ArmSpec{});
  EXPECT_EQ(ArmSpec{}.text(), "bf16");
}

TEST(ArmSpec, DifferentSpellingsOfOneArmAreOneArm) {
  const auto text = [](std::string_view spelled) { return ArmSpec::parse(spelled).text(); };
  EXPECT_EQ(text("fp8_head/bf16=7v,3k,0"), "fp8_head/bf16=0,3k,7v");
  EXPECT_EQ(text("fp8_head/bf16=3k,3v"), "fp8_head/bf16=3");
  EXPECT_EQ(text("fp8_head/bf16=3k,3k"), "fp8_head/bf16=3k");
  EXPECT_EQ(text("fp8_head/bf16=3,3k"), "fp8_head/bf16=3");
  EXPECT_EQ(text("fp8_head/round=nearest/math=bf16"), "fp8_head");
  EXPECT_EQ(text("fp8_head/round=truncate/math=fp8/bf16=1"),
            "fp8_head/bf16=1/math=fp8/round=truncate");
}

TEST(ArmSpec, UnknownLayoutsNameTheNearestOne) {
  const std::string start =
      "arm: layout: expected bf16, fp8_scale1, fp8_tensor, fp8_head, fp8_token_head, fp8_ds_mla or "
      "q8_0, "
      "found ";
  EXPECT_EQ(message_of("bf61"), start + "\"bf61\"; did you mean bf16?");
  EXPECT_EQ(message_of("fp8_tensr"), start + "\"fp8_tensr\"; did you mean fp8_tensor?");
  EXPECT_EQ(message_of("fp8_heads/bf16=1"), start + "\"fp8_heads\"; did you mean fp8_head?");
  EXPECT_EQ(message_of("fp8_tokenhead"), start + "\"fp8_tokenhead\"; did you mean fp8_token_head?");
  EXPECT_EQ(message_of("fp8_scale"), start + "\"fp8_scale\"; did you mean fp8_scale1?");
  EXPECT_EQ(message_of(""), start + "\"\"; did you mean bf16?");
}

TEST(ArmSpec, UnknownOptionsNameTheNearestOne) {
  const std::string start =
      "arm: option: expected bf16=LAYERS, sink=TOKENS, math=bf16|fp8, round=nearest|truncate or "
      "scales=FILE, "
      "found ";
  const std::vector<std::pair<std::string, std::string>> cases = {{"mth=fp8", "math=fp8"},
                                                                  {"math=fp16", "math=bf16"},
                                                                  {"round=trunc", "round=truncate"},
                                                                  {"bf61", "bf16="},
                                                                  {"scales", "scales="},
                                                                  {"scales=", "scales="},
                                                                  {"scale=x", "scales="},
                                                                  {"", "bf16="}};
  for (const auto& [option, nearest] : cases) {
    EXPECT_EQ(message_of("fp8_head/" + option),
              start + '"' + option + "\"; did you mean " + nearest + "?");
  }
}

TEST(ArmSpec, OptionsGivenTwiceAreRefused) {
  EXPECT_EQ(message_of("fp8_head/bf16=1/bf16=2"),
            "arm: option: expected bf16 once, found it twice");
  EXPECT_EQ(message_of("fp8_head/math=fp8/math=bf16"),
            "arm: option: expected math once, found it twice");
}

TEST(ArmSpec, LayersThatAreNoneAreQuoted) {
  const std::string start = "arm: bf16: expected layers as 0,3k,7v, found ";
  for (const char* word : {"", "-1", "k", "3q", "3kv", "3 ", "+3", "99999999999", "1.5"})
    EXPECT_EQ(message_of(std::string("fp8_head/bf16=") + word), start + '"' + word + '"');
  EXPECT_EQ(message_of("fp8_head/bf16=1,,2"), start + "\"\"");
}

TEST(ArmSpec, ASinkIsANumberOfTokensOfScaleOne) {
  EXPECT_EQ(ArmSpec::parse("fp8_scale1/sink=4").sink, 4);
  EXPECT_EQ(ArmSpec::parse("fp8_scale1/sink=4/bf16=1k").text(), "fp8_scale1/bf16=1k/sink=4");
  for (const char* word : {"", "0", "-1", "4x", "k"}) {
    EXPECT_EQ(message_of(std::string("fp8_scale1/sink=") + word),
              std::string("arm: sink: expected a number of tokens, found \"") + word + '"');
  }
  for (const char* arm : {"fp8_head/sink=4", "fp8_scale1/sink=4/math=fp8"}) {
    EXPECT_EQ(message_of(arm),
              std::string("arm: sink: needed fp8_scale1 with math=bf16, whose codes are 16-bit "
                          "values, found \"") +
                  arm + '"');
  }
}

TEST(ArmSpec, OptionsThatWouldDoNothingAreRefused) {
  EXPECT_EQ(message_of("bf16/round=truncate"),
            "arm: bf16 stores no codes and takes no options, found \"bf16/round=truncate\"");
  EXPECT_EQ(message_of("bf16/scales=x.json"),
            "arm: bf16 stores no codes and takes no options, found \"bf16/scales=x.json\"");
  EXPECT_EQ(message_of("fp8_scale1/scales=x.json"),
            "arm: scales: fp8_scale1 has no static scales to read from a file");
  EXPECT_EQ(message_of("fp8_token_head/bf16=1/scales=x.json"),
            "arm: scales: fp8_token_head has no static scales to read from a file");
}

/// Texts made of pieces of right ones either are arms, and then their own spelling is the same arm,
/// or are refused.
TEST(ArmSpec, MutatedTextsAreReadBackOrRefused) {
  const std::vector<std::string> seeds = {
      "fp8_head/bf16=0,3k,7v/math=fp8/round=truncate/scales=a/b.json", "fp8_token_head/bf16=12",
      "fp8_scale1/round=nearest", "bf16", "fp8_tensor/math=bf16/scales=/x"};
  const std::string alphabet = "/=,0379kvbf16_ \0xE";
  SplitMix64 random(17);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = seeds[random.below(seeds.size())];
    for (uint64_t edits = 1 + random.below(4); edits > 0; --edits) {
      const size_t at = random.below(text.size() + 1);
      const char c = alphabet[random.below(alphabet.size())];
      if (random.below(3) == 0 || at == text.size()) {
        text.insert(at, 1, c);
      } else if (random.below(2) == 0) {
        text.erase(at, 1);
      } else {
        text[at] = c;
      }
    }
    try {
      const ArmSpec arm = ArmSpec::parse(text);
      ASSERT_EQ(ArmSpec::parse(arm.text()), arm) << text;
      ++accepted;
    } catch (const ValueError&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 50);
}

TEST(ArmSpec, FormatsFollowLayoutAndExceptions) {
  EXPECT_EQ(stored_format(ArmLayout::kBf16), Format::kBf16);
  EXPECT_EQ(stored_format(ArmLayout::kFp8Scale1), Format::kE4m3PerTensor);
  EXPECT_EQ(stored_format(ArmLayout::kFp8Tensor), Format::kE4m3PerTensor);
  EXPECT_EQ(stored_format(ArmLayout::kFp8Head), Format::kE4m3PerHead);
  EXPECT_EQ(stored_format(ArmLayout::kFp8TokenHead), Format::kE4m3PerTokenHead);
  const auto formats = ArmSpec::parse("fp8_head/bf16=0,1k,3v").formats(4);
  const std::vector<std::pair<Format, Format>> expected = {
      {Format::kBf16, Format::kBf16},
      {Format::kBf16, Format::kE4m3PerHead},
      {Format::kE4m3PerHead, Format::kE4m3PerHead},
      {Format::kE4m3PerHead, Format::kBf16}};
  ASSERT_EQ(formats.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(formats[i].k, expected[i].first) << i;
    EXPECT_EQ(formats[i].v, expected[i].second) << i;
  }
}

TEST(ArmSpec, LayersBeyondTheModelAreRefused) {
  try {
    ArmSpec::parse("fp8_head/bf16=2,6v").formats(6);
    FAIL() << "layer 6 of 6 was accepted";
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "arm fp8_head/bf16=2,6v: bf16: expected layers 0 to 5, found 6");
  }
}

TEST(ArmSpec, KeepingWholeLayersChangesNothingElse) {
  const ArmSpec arm = ArmSpec::parse("fp8_head/bf16=1k/round=truncate/scales=x");
  EXPECT_EQ(arm.with_bf16_layers({5, 0}).text(), "fp8_head/bf16=0,5/round=truncate/scales=x");
  EXPECT_EQ(arm.with_bf16_layers({}).text(), "fp8_head/round=truncate/scales=x");
}

}  // namespace
}  // namespace kv
