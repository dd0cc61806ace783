#include "evaluate/scorers.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "evaluate/answers.h"
#include "evaluate/similarity.h"
#include "kvscale/error.h"

namespace kv {
namespace {

TEST(CountError, IsTheDistanceOfTheNumberThatTheAnswerBeginsWith) {
  EXPECT_EQ(count_error(" 12", "9"), 3);
  EXPECT_EQ(count_error("9", " 12"), 3);
  EXPECT_EQ(count_error("12 of them", "12"), 0);
  EXPECT_EQ(count_error("of them 12", "12"), std::nullopt);
  EXPECT_EQ(count_error("", "12"), std::nullopt);
  EXPECT_THROW(count_error("12", "twelve"), ValueError);
}

double value(Check check, std::string_view text, std::vector<std::string> accepted) {
  const Score score = score_text(check, text, accepted);
  EXPECT_TRUE(score.valid) << score.reason;
  return score.value;
}

Score scored(Check check, std::string_view text, std::vector<std::string> accepted) {
  return score_text(check, text, accepted);
}

TEST(Scorers, NamesComeBack) {
  for (const Check check : {Check::kExact, Check::kPrefix, Check::kContains, Check::kRegex,
                            Check::kNumber, Check::kJsonEqual, Check::kShare, Check::kSimilarity,
                            Check::kTokenAccuracy, Check::kCommand}) {
    EXPECT_EQ(check_from_name(name(check)), check);
  }
  EXPECT_EQ(check_from_name("Exact"), std::nullopt);
}

TEST(Scorers, TokensCountUpToTheFirstMiss) {
  const std::vector<int32_t> expected = {5, 6, 7, 8};
  const auto both = [&](std::vector<int32_t> produced) {
    return std::pair(score_tokens(Check::kExact, expected, produced).value,
                     score_tokens(Check::kPrefix, expected, produced).value);
  };
  EXPECT_EQ(both({5, 6, 7, 8}), std::pair(1.0, 1.0));
  EXPECT_EQ(both({5, 6, 7, 8, 9}), std::pair(1.0, 1.0));
  EXPECT_EQ(both({5, 6, 7, 9}), std::pair(0.0, 0.75));
  EXPECT_EQ(both({5, 9, 7, 8}), std::pair(0.0, 0.25));
  EXPECT_EQ(both({9, 6, 7, 8}), std::pair(0.0, 0.0));
  EXPECT_EQ(both({5, 6}), std::pair(0.0, 0.5));
  EXPECT_EQ(both({}), std::pair(0.0, 0.0));
  EXPECT_THROW(score_tokens(Check::kContains, expected, expected), ValueError);
  EXPECT_THROW(score_tokens(Check::kExact, {}, expected), ValueError);
}

TEST(Scorers, TokenAccuracyCountsEveryPosition) {
  const std::vector<int32_t> expected = {5, 6, 7, 8};
  const auto accuracy = [&](std::vector<int32_t> produced) {
    return score_tokens(Check::kTokenAccuracy, expected, produced).value;
  };
  EXPECT_EQ(accuracy({5, 6, 7, 8}), 1);
  EXPECT_EQ(accuracy({9, 6, 7, 8}), 0.75);
  EXPECT_EQ(accuracy({5, 6}), 0.5);
  EXPECT_EQ(accuracy({6, 7, 8, 5}), 0);
  EXPECT_EQ(accuracy({}), 0);
  EXPECT_THROW(scored(Check::kTokenAccuracy, "x", {"x"}), ValueError);
}

TEST(Scorers, ShareCountsWholeWords) {
  EXPECT_EQ(value(Check::kShare, "oak, pine and elm", {"oak", "elm", "ash", "pine"}), 0.75);
  EXPECT_EQ(value(Check::kShare, "oak", {"oak"}), 1);
  EXPECT_EQ(value(Check::kShare, "", {"oak", "elm"}), 0);
  EXPECT_EQ(value(Check::kShare, "a cloak, oaks, soak, oak7", {"oak", "cloak"}), 0.5);
  EXPECT_EQ(value(Check::kShare, "a cloak, then oak.", {"oak"}), 1) << "the second one is whole";
  EXPECT_EQ(value(Check::kShare, "12345678", {"1234567"}), 0);
  EXPECT_EQ(value(Check::kShare, "(1234567)", {"1234567", " 1234567\n"}), 1);
  EXPECT_EQ(value(Check::kShare, "quiet-harbor-x", {"quiet-harbor"}), 1);
  EXPECT_EQ(value(Check::kShare, "\u201eoak\u201c", {"oak"}), 1);
  EXPECT_EQ(value(Check::kShare, "x-1x", {"-1"}), 0);
  EXPECT_EQ(value(Check::kShare, "x-1", {"-1"}), 1) << "the mark begins no word";
}

TEST(Scorers, SimilarityIsDifflibsRatio) {
  EXPECT_NEAR(similarity("abcd efgh", "abcd xefg"), 0.8888888889, 1e-10);
  const std::string path = std::string(KV_SOURCE_DIR) + "/tests/golden/evaluate/similarity.json";
  std::ifstream file(path);
  const nlohmann::json pairs = nlohmann::json::parse(file);
  ASSERT_GT(pairs.size(), 100u);
  for (const auto& pair : pairs) {
    const std::string a = pair["a"], b = pair["b"];
    EXPECT_DOUBLE_EQ(similarity(a, b), pair["ratio"].get<double>()) << a << "\n" << b;
  }
}

TEST(Scorers, SimilarityTakesAnyBytesAndTheBestAnswer) {
  EXPECT_EQ(similarity("\xff\xfe", "\xff\xfe"), 1);
  EXPECT_EQ(similarity("\xe6\x9d", "\xe6\x9d\xb1"), 0) << "half a code point is another one";
  EXPECT_EQ(value(Check::kSimilarity, " same text\n", {"else", "same text"}), 1);
  EXPECT_EQ(value(Check::kSimilarity, "xyz", {"abc"}), 0);
}

TEST(Scorers, ATagMustComeFirst) {
  Question question;
  question.check = Check::kSimilarity;
  question.accepted_answers = {"The owl."};
  question.tag = "k3j";
  EXPECT_EQ(score_text(question, " k3j The owl.\n").value, 1);
  EXPECT_EQ(score_text(question, "k3j: The owl.").value, 2.0 * 8 / 18);
  EXPECT_EQ(score_text(question, "The owl.").value, 0);
  EXPECT_EQ(score_text(question, "Sure: k3j The owl.").value, 0);
  EXPECT_EQ(score_text(question, "k3").value, 0);
  EXPECT_EQ(score_text(question, "k3j").value, 0);
  EXPECT_EQ(score_text(question, "").value, 0);
}

TEST(Scorers, ExactComparesTrimmedText) {
  EXPECT_EQ(value(Check::kExact, " Paris\n", {"Paris"}), 1);
  EXPECT_EQ(value(Check::kExact, "Paris", {"Rome", "\tParis "}), 1);
  EXPECT_EQ(value(Check::kExact, "Paris.", {"Paris"}), 0);
  EXPECT_EQ(value(Check::kExact, "paris", {"Paris"}), 0);
  EXPECT_EQ(value(Check::kExact, "", {"Paris"}), 0);
}

TEST(Scorers, ContainsFindsAnyAcceptedAnswer) {
  EXPECT_EQ(value(Check::kContains, "It is 4820193, I think.", {"4820193"}), 1);
  EXPECT_EQ(value(Check::kContains, "It is 482019.", {"4820193", "19."}), 1);
  EXPECT_EQ(value(Check::kContains, "It is 482019", {"4820193"}), 0);
}

TEST(Scorers, RegexSearches) {
  EXPECT_EQ(value(Check::kRegex, "The answer: forty-two", {"answer:\\s+\\w+-two$"}), 1);
  EXPECT_EQ(value(Check::kRegex, "no", {"^yes", "^n"}), 1);
  EXPECT_EQ(value(Check::kRegex, "gr\u00fcn", {"^gr.n$"}), 1) << "a code point, not a byte";
  EXPECT_EQ(value(Check::kRegex, "broken \xff text 7", {"\\d"}), 1);
  EXPECT_EQ(value(Check::kRegex, "maybe", {"^yes$"}), 0);
}

TEST(Scorers, RegexThatRunsAwayIsInvalidNotEndless) {
  const Score score = scored(Check::kRegex, std::string(40, 'a') + "b", {"^(a|aa|a?a)+$"});
  EXPECT_FALSE(score.valid);
  EXPECT_EQ(score.value, 0);
  EXPECT_NE(score.reason.find("limit"), std::string::npos) << score.reason;
}

TEST(Scorers, NumberIsTheLastOne) {
  EXPECT_EQ(value(Check::kNumber, "3 and 4 make 7", {"7"}), 1);
  EXPECT_EQ(value(Check::kNumber, "3 and 4 make 7.", {"7.0"}), 1);
  EXPECT_EQ(value(Check::kNumber, "It costs $1,234,567.50!", {"1234567.5"}), 1);
  EXPECT_EQ(value(Check::kNumber, "#### -12", {"-12"}), 1);
  EXPECT_EQ(value(Check::kNumber, "12-7", {"7"}), 1);
  EXPECT_EQ(value(Check::kNumber, "x = -2.5e3", {"-2500"}), 1);
  EXPECT_EQ(value(Check::kNumber, "6 then 7", {"6"}), 0);
  EXPECT_EQ(value(Check::kNumber, "12,34", {"34"}), 1) << "no group of three";
  EXPECT_EQ(value(Check::kNumber, "1,2345", {"2345"}), 1);
  const Score none = scored(Check::kNumber, "seven", {"7"});
  EXPECT_FALSE(none.valid);
  EXPECT_EQ(none.reason, "no number in the answer");
}

TEST(Scorers, NumbersParse) {
  const std::vector<std::pair<std::string, std::optional<double>>> cases = {
      {"7", 7},           {" +7.50 ", 7.5}, {"-0.25", -0.25},
      {".5", 0.5},        {"1e3", 1000},    {"1E+3", 1000},
      {"2e-2", 0.02},     {"1,000", 1000},  {"12,000.5", 12000.5},
      {"1,000,000", 1e6}, {"", {}},         {"-", {}},
      {"1,00", {}},       {"1,0000", {}},   {"1000,000", {}},
      {"7 8", {}},        {"7a", {}},       {"1e999", {}},
      {"e3", {}},         {"5.", {}},       {"--5", {}},
      {"nan", {}},        {"inf", {}},      {"0x10", {}}};
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(answers::parse_number(text), expected) << '"' << text << '"';
  }
}

TEST(Scorers, JsonComparesValues) {
  EXPECT_EQ(value(Check::kJsonEqual, "Here: ```json\n{\"a\": [1, 2], \"b\": null}\n```",
                  {R"({"b":null,"a":[1,2]})"}),
            1);
  EXPECT_EQ(value(Check::kJsonEqual, "{\"a\": 1.0}", {R"({"a": 1})"}), 1);
  EXPECT_EQ(value(Check::kJsonEqual, "{\"a\": \"}\\\"\"} {\"a\": 2}", {R"({"a": "}\""})"}), 1);
  EXPECT_EQ(value(Check::kJsonEqual, "a stray [ then {\"a\": 2}", {R"({"a": 2})"}), 1);
  EXPECT_EQ(value(Check::kJsonEqual, " 42 ", {"42"}), 1);
  EXPECT_EQ(value(Check::kJsonEqual, "[1, 2]", {"[2, 1]"}), 0);
  EXPECT_FALSE(scored(Check::kJsonEqual, "nothing here", {"1"}).valid);
  EXPECT_FALSE(scored(Check::kJsonEqual, "{broken", {"1"}).valid);
}

TEST(Scorers, HostileJsonIsCheap) {
  EXPECT_FALSE(scored(Check::kJsonEqual, std::string(1'000'000, '['), {"1"}).valid);
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_FALSE(scored(Check::kJsonEqual, deep, {"1"}).valid);
  EXPECT_FALSE(answers::is_json(deep));
  EXPECT_THROW(check_answer(Check::kJsonEqual, deep), ValueError);
  std::string nearly = std::string(100, '[') + std::string(100, ']');
  EXPECT_TRUE(answers::is_json(nearly));
}

TEST(Scorers, UnusableAnswersAreRefused) {
  EXPECT_THROW(check_answer(Check::kRegex, "(unclosed"), ValueError);
  EXPECT_THROW(check_answer(Check::kNumber, "seven"), ValueError);
  EXPECT_THROW(check_answer(Check::kJsonEqual, "{a: 1}"), ValueError);
  EXPECT_THROW(check_answer(Check::kContains, ""), ValueError);
  EXPECT_THROW(check_answer(Check::kContains, " \n"), ValueError);
  EXPECT_THROW(scored(Check::kExact, "x", {}), ValueError);
  EXPECT_THROW(scored(Check::kPrefix, "x", {"x"}), ValueError);
  try {
    check_answer(Check::kRegex, "a(b");
  } catch (const ValueError& error) {
    EXPECT_EQ(std::string(error.what()),
              "expected a PCRE2 pattern, found \"a(b\": missing closing parenthesis at offset 3");
  }
}

TEST(Scorers, MutatedTextsAreScoredOrInvalid) {
  std::mt19937_64 random(21);
  const std::string seed = "so {\"a\": [1, -2.5e3, \"\\u00e9]\"]} 1,234 and (x) \xc3\xa9";
  int valid = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (uint64_t edits = random() % 6; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.insert(at, text.substr(random() % text.size(), random() % 20));
    }
    for (const auto& [check, answer] : std::vector<std::pair<Check, std::string>>{
             {Check::kNumber, "1234"}, {Check::kJsonEqual, "[1]"}, {Check::kRegex, "x\\)"}}) {
      const Score score = scored(check, text, {answer});
      EXPECT_TRUE(score.value == 0 || score.value == 1);
      EXPECT_EQ(score.valid, score.reason.empty());
      valid += score.valid ? 1 : 0;
    }
  }
  EXPECT_GT(valid, 20000);
}

TEST(Scorers, RunawayRepetitionIsSeen) {
  std::vector<int32_t> tokens(70);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  EXPECT_FALSE(is_runaway(tokens));
  for (const size_t piece : {1u, 3u, 32u}) {
    std::vector<int32_t> runaway = tokens;
    const size_t repeats = std::max<size_t>(8, (64 + piece - 1) / piece);
    for (size_t i = 0; i < repeats * piece; ++i)
      runaway.push_back(1000 + static_cast<int>(i % piece));
    EXPECT_TRUE(is_runaway(runaway)) << piece;
    runaway.back() = -1;
    EXPECT_FALSE(is_runaway(runaway)) << piece;
  }
  EXPECT_FALSE(is_runaway(std::vector<int32_t>(63, 5)));
  EXPECT_TRUE(is_runaway(std::vector<int32_t>(64, 5)));
  EXPECT_FALSE(is_runaway({}));
}

}  // namespace
}  // namespace kv
