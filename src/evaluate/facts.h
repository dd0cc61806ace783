#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "evaluate/generators.h"
#include "stats/splitmix64.h"

namespace kv {

/// Something that a context says and a question asks for again: the line "question answer end".
struct Fact {
  std::string question;  // "quiet-harbor:"
  std::string answer;    // " 48213", with its leading space
  std::string end;       // what ends the sentence in the context: "" or "."

  std::string line() const { return question + answer + end + "\n"; }
};

/// The words of one document, all different.
class FactMaker {
 public:
  /// task as in GeneratorOptions.
  FactMaker(std::string task, Form form, uint64_t seed);

  /// A fact whose key and answer no earlier fact of this maker has. Throws UnsupportedError when
  /// the supply of keys is at its end (about 49,000 plain ones).
  Fact next();

  /// How likely a guess without the context is right.
  double chance() const;

 private:
  std::string key();
  std::string answer();
  std::string fresh_answer();

  std::string task_;
  Form form_;
  SplitMix64 random_;
  std::vector<size_t> nouns_, adjectives_;  // shuffled
  size_t num_keys_ = 0, num_needles_ = 0;
  std::unordered_set<std::string> used_keys_, used_answers_;
};

}  // namespace kv
