#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "evaluate/generators.h"
#include "stats/splitmix64.h"

namespace kv {

/// Draws the words of one document.
class WordMaker {
 public:
  WordMaker(Form form, uint64_t seed);

  /// A name that no earlier key of this maker has: "quiet-harbor", compact "dorina". Throws
  /// UnsupportedError when the supply is at its end (about 49,000 plain ones).
  std::string key();

  /// Syllables of one consonant and one vowel.
  std::string made_up_word(int syllables);

  /// A number of exactly this many digits.
  std::string number(int digits);

  /// Of another draw each time, until one comes that no earlier call gave.
  template <class Draw>
  std::string fresh(Draw draw) {
    while (true) {
      std::string drawn = draw();
      if (used_.insert(drawn).second) return drawn;
    }
  }

  std::string_view pick(std::span<const std::string_view> words);

  SplitMix64& random() { return random_; }

  /// How many different words made_up_word(syllables) has.
  static double num_made_up(int syllables);

 private:
  Form form_;
  SplitMix64 random_;
  std::vector<size_t> nouns_, adjectives_;  // shuffled
  size_t num_keys_ = 0;
  std::unordered_set<std::string> used_keys_, used_;
};

/// Fisher and Yates, from the last one down.
template <class Item>
void shuffle(std::vector<Item>& items, SplitMix64& random) {
  for (size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[static_cast<size_t>(random.below(i))]);
  }
}

}  // namespace kv
