#include "evaluate/near_duplicates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "stats/splitmix64.h"

namespace kv {
namespace {

using Tokens = std::vector<int32_t>;

Tokens random_tokens(SplitMix64& random, size_t n) {
  Tokens out(n);
  for (int32_t& token : out) token = static_cast<int32_t>(random.below(30000));
  return out;
}

std::vector<size_t> groups_of(const std::vector<Tokens>& texts) {
  std::vector<std::span<const int32_t>> spans(texts.begin(), texts.end());
  return group_near_duplicates(spans);
}

/// By definition, over sets of tuples.
double plain_jaccard(const Tokens& a, const Tokens& b) {
  const auto shingles = [](const Tokens& text) {
    std::set<Tokens> out;
    const size_t n = std::min<size_t>(8, text.size());
    for (size_t i = 0; i + n <= text.size(); ++i) {
      out.insert(Tokens(text.begin() + static_cast<std::ptrdiff_t>(i),
                        text.begin() + static_cast<std::ptrdiff_t>(i + n)));
    }
    return out;
  };
  const std::set<Tokens> first = shingles(a), second = shingles(b);
  double shared = 0;
  for (const Tokens& one : first) shared += second.contains(one) ? 1.0 : 0.0;
  return shared / (static_cast<double>(first.size() + second.size()) - shared);
}

TEST(NearDuplicates, FollowTheDefinitionOnBothSidesOfTheLimit) {
  // Each replaced token of 200 takes 8 shingles with it: 2 of them leave a similarity of 0.85, 3 of
  // 0.78, as the plain count says.
  SplitMix64 random(3);
  int above = 0, below = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Tokens text = random_tokens(random, 150 + random.below(100));
    Tokens edited = text;
    const int edits = static_cast<int>(random.below(6));
    for (int e = 0; e < edits; ++e) edited[random.below(edited.size())] = 40000 + e;
    const bool is_near = plain_jaccard(text, edited) >= kNearDuplicate;
    (is_near ? above : below) += 1;
    const std::vector<size_t> groups = groups_of({text, random_tokens(random, 200), edited});
    EXPECT_EQ(groups, (std::vector<size_t>{0, 1, is_near ? size_t{0} : size_t{2}})) << trial;
  }
  EXPECT_GT(above, 50);
  EXPECT_GT(below, 50);
}

TEST(NearDuplicates, GroupsGoThroughOthersAndAreNamedByTheFirst) {
  SplitMix64 random(5);
  const Tokens a = random_tokens(random, 300);
  Tokens b = a, c = a;
  b[100] = 40000;                 // 0.95 like a
  c[100] = 40000, c[50] = 40000;  // like b, less like a
  c[20] = 40000, c[200] = 40000;
  ASSERT_GE(plain_jaccard(b, c), kNearDuplicate);
  EXPECT_EQ(groups_of({random_tokens(random, 300), c, b, a}), (std::vector<size_t>{0, 1, 1, 1}));
}

TEST(NearDuplicates, ShortTextsAreTheirOwnShingle) {
  EXPECT_EQ(groups_of({{1, 2, 3}, {1, 2, 4}, {1, 2, 3}, {1, 2}}),
            (std::vector<size_t>{0, 1, 0, 3}));
}

TEST(NearDuplicates, ManyDifferentTextsStayApart) {
  SplitMix64 random(9);
  std::vector<Tokens> texts;
  for (int i = 0; i < 500; ++i) texts.push_back(random_tokens(random, 60));
  const std::vector<size_t> groups = groups_of(texts);
  for (size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(groups[i], i);
}

Prompt prompt_of(const char* id, const char* cluster, const Tokens& tokens) {
  Prompt out;
  out.id = id;
  out.cluster = cluster;
  out.tokens = tokens;
  return out;
}

TEST(Clusters, AreWhatIsNamedAndWhatIsAlike) {
  SplitMix64 random(1);
  const Tokens a = random_tokens(random, 100), b = random_tokens(random, 100),
               c = random_tokens(random, 100), d = random_tokens(random, 100);
  std::vector<Prompt> prompts = {prompt_of("p0", "", a), prompt_of("p1", "book", b),
                                 prompt_of("p2", "", c), prompt_of("p3", "book", d),
                                 prompt_of("p4", "", a), prompt_of("p5", "", d)};
  EXPECT_EQ(assign_clusters(prompts), 2) << "p4 is like p0, p5 like p3";
  std::vector<std::string> clusters;
  for (const Prompt& prompt : prompts) clusters.push_back(prompt.cluster);
  EXPECT_EQ(clusters, (std::vector<std::string>{"p0", "book", "p2", "book", "p0", "book"}));
}

}  // namespace
}  // namespace kv
