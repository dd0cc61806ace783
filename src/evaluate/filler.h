#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/generators.h"
#include "stats/splitmix64.h"

namespace kv {

class Tokenizer;

/// A line of text, newline included, with what it costs in tokens.
struct Line {
  std::string text;
  int64_t tokens = 0;
};

/// Makes running text of an exact length in tokens. A line's cost does not depend on its
/// neighbours: after a single newline that a letter follows, every byte-level pre-tokenizer cuts.
class FillerMaker {
 public:
  FillerMaker(const Tokenizer& tokenizer, Filler kind);

  /// Lines that cost `tokens` together; none for 0. Throws UnsupportedError when no line does:
  /// below kLeastTokens nearly always.
  std::vector<Line> lines(int64_t tokens, SplitMix64& random) const;

  /// What text costs on its own.
  int64_t cost(std::string_view text) const;

  static constexpr int64_t kLeastTokens = 12;

  /// A sentence of the prose.
  static std::string sentence(SplitMix64& random);

 private:
  Line paragraph(SplitMix64& random) const;
  Line exact_line(int64_t tokens, SplitMix64& random) const;
  bool finish_sentence(std::string& text, int64_t tokens, SplitMix64& random) const;

  const Tokenizer& tokenizer_;
  Filler kind_;
  std::vector<std::string_view> words_;
  std::vector<int64_t> costs_;  // of each word after a space
  int64_t least_cost_ = 0;
};

}  // namespace kv
