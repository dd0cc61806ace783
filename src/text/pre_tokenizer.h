#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace kv {

/// What becomes of a match when a text is split (the names of tokenizer.json).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// One pre-tokenizer: Split, Digits, or the splitting part of ByteLevel.
struct SplitStep {
  std::optional<Regex> regex;  // none: ByteLevel with use_regex = false
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool is_inverted = false;        // matches and gaps change places
  bool adds_prefix_space = false;  // ByteLevel: a piece that does not begin with a space gets one
};

/// A Sequence of steps, each applied to every piece that the one before left.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<SplitStep> steps) : steps_(std::move(steps)) {}

  using Matchers = std::vector<std::optional<RegexMatcher>>;
  using Sink = std::function<void(std::string_view)>;

  /// One matcher a step, for one thread at a time.
  Matchers make_matchers() const;

  /// Gives the words of well-formed `text` to `sink`, in order; none is empty. A view may die when
  /// the sink returns.
  void split(std::string_view text, Matchers& matchers, const Sink& sink) const;

 private:
  void run(size_t step, std::string_view piece, Matchers& matchers, const Sink& sink) const;

  std::vector<SplitStep> steps_;
};

}  // namespace kv
