#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "tests/text/golden.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"
#include "text/regex_dialect.h"

namespace kv {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The pieces of `text`, matches in angle brackets.
std::string cut(const std::string& pattern, std::string_view text) {
  std::string out;
  RegexMatcher(Regex(to_pcre2(pattern, "test"), "test")).for_each_segment(text, [&](Segment s) {
    const std::string_view piece = text.substr(s.begin, s.end - s.begin);
    out += s.is_match ? "<" + std::string(piece) + ">" : std::string(piece);
  });
  return out;
}

TEST(RegexDialect, WhatBothEnginesReadDifferentlyIsRefused) {
  for (const char* pattern :
       {"\\w",     "\\bx",        "\\h",    "[\\w]",   "[^\\S]",     "[\\P{L}]", "x{2}+",
        "x{2,3}?", "x{,3}",       "(?m:.)", "(?x) a",  "(?<name>x)", "a(?i)b",   "[a&&b]",
        "[a[bc]]", "[[:alpha:]]", "[]a]",   "\\p{Mn}", "\\p{Greek}", "\\p{^L}",  "\\pL",
        "(?i:ss)", "(?i:FI)",     "\\1",    "\\R",     "\\K",        "\\X",      "\\u12"}) {
    EXPECT_THROW(to_pcre2(pattern, "test"), UnsupportedError) << pattern;
  }
  EXPECT_EQ(
      message_of([] { to_pcre2("a\\bc", "f.json: p"); }),
      "f.json: p: pattern a\\bc: \\b at 1 has no equal in PCRE2, or another meaning there; "
      "supported: literals, classes, groups, alternation, quantifiers, lookaround, \\s \\S \\d "
      "\\p{..}");
}

TEST(RegexDialect, VerbsOfPcre2AreNoPatterns) {
  EXPECT_THROW(to_pcre2("(*UTF)a", "test"), UnsupportedError);
  EXPECT_THROW(to_pcre2("a(*ACCEPT)", "test"), UnsupportedError);
}

TEST(RegexDialect, BrokenPatternsAreRefusedByName) {
  for (const char* pattern : {"[a", "(a", "a)", "*", "[b-a]", "\\p{L", "x**y)", "(?<=a+)b"}) {
    EXPECT_THROW(Regex(to_pcre2(pattern, "f.json: p"), "f.json: p"), Error) << pattern;
  }
  EXPECT_EQ(message_of([] { Regex("(a", "f.json: p"); }),
            "f.json: p: pattern does not compile: missing closing parenthesis at 2 of (a");
}

TEST(Regex, SegmentsCoverTheTextInOrder) {
  EXPECT_EQ(cut("a+", "baaca"), "b<aa>c<a>");
  EXPECT_EQ(cut("x", "abc"), "abc");
  EXPECT_EQ(cut("x*", "axxb"), "<>a<xx>b<>");
  EXPECT_EQ(cut("(?=b)", "abab"), "a<>ba<>b");
  EXPECT_EQ(cut("^.", "ab\ncd"), "<a>b\n<c>d");  // lines, as in Ruby
  EXPECT_EQ(cut("[\\v\\u0041\\x{42}]",
                "\x0b"
                "ABC\n"),
            "<\x0b><A><B>C\n");
  EXPECT_EQ(cut("\\s", "a\u180eb\u3000c"), "a\u180eb<\u3000>c");
  EXPECT_EQ(cut("(?i:'s)", "'S'\u017f"), "<'S><'\u017f>");
}

TEST(Regex, QuotedLiteralsMatchThemselves) {
  const std::string_view literal = "a.b[\\](é)";
  const std::string_view text = "aXb a.b[\\](é) a.b";
  std::string found;
  RegexMatcher(Regex(Regex::quote(literal), "test")).for_each_segment(text, [&](Segment s) {
    if (s.is_match) found += text.substr(s.begin, s.end - s.begin);
  });
  EXPECT_EQ(found, literal);
}

TEST(Regex, APatternWithoutBoundGivesUpInsteadOfHanging) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += 'a';
  EXPECT_THROW(cut("(?:a|aa|aaa)+[bc]", text), ValueError);
}

std::string split(SplitBehavior behavior, bool invert, std::string_view text) {
  SplitStep step;
  step.regex = Regex("-", "test");
  step.behavior = behavior;
  step.is_inverted = invert;
  const PreTokenizer pre({step});
  auto matchers = pre.make_matchers();
  std::string out;
  pre.split(text, /*is_first=*/true, matchers,
            [&](std::string_view piece) { out += std::string(piece) + "|"; });
  return out;
}

TEST(PreTokenizer, Behaviours) {
  const std::string_view text = "-the--cat-";
  EXPECT_EQ(split(SplitBehavior::kRemoved, false, text), "the|cat|");
  EXPECT_EQ(split(SplitBehavior::kRemoved, true, text), "-|-|-|-|");
  EXPECT_EQ(split(SplitBehavior::kIsolated, false, text), "-|the|-|-|cat|-|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, false, text), "-|the-|-|cat-|");
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, false, text), "-the|-|-cat|-|");
  EXPECT_EQ(split(SplitBehavior::kContiguous, false, text), "-|the|--|cat|-|");
  EXPECT_EQ(split(SplitBehavior::kContiguous, false, ""), "");
}

}  // namespace
}  // namespace kv
