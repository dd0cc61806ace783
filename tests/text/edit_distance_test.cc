#include "text/edit_distance.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace kv {
namespace {

TEST(EditDistance, CountsInsertionsRemovalsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("decide", "decid"), 1u);
  EXPECT_EQ(edit_distance("ab", "ba"), 2u);
}

// It is a distance: no sign, no direction, no short cut over a third word.
TEST(EditDistance, IsADistance) {
  std::vector<std::string> words = {""};
  for (size_t i = 0; words[i].size() < 3; ++i) {
    for (const char c : {'a', 'b', 'c'}) words.push_back(words[i] + c);
  }
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      EXPECT_EQ(edit_distance(a, b), edit_distance(b, a));
      EXPECT_EQ(edit_distance(a, b) == 0, a == b);
      EXPECT_LE(edit_distance(a, b), edit_distance(a, "bc") + edit_distance("bc", b));
    }
  }
}

TEST(NearestWord, IsWithinTwoEditsOrNone) {
  const std::array<std::string_view, 4> known = {"scan", "plan", "decide", "id"};
  EXPECT_EQ(nearest_word("decid", known), "decide");
  EXPECT_EQ(nearest_word("span", known), "scan");
  EXPECT_EQ(nearest_word("xyzan", known), "");
  EXPECT_EQ(nearest_word("xx", known), "") << "as many edits as characters";
  EXPECT_EQ(nearest_word(std::string(100000, 'a'), known), "");
  EXPECT_EQ(nearest_word("decidxyz", known, 3), "decide");
}

}  // namespace
}  // namespace kv
