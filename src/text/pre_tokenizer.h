#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace kv {

/// What becomes of a match when a text is split (the names of tokenizer.json).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Where Metaspace puts a space of its own: before every piece, the one that begins the text, none.
enum class PrependScheme { kAlways, kFirst, kNever };

/// One pre-tokenizer: Split, Digits, Metaspace, ..., or the splitting part of ByteLevel.
struct SplitStep {
  std::optional<Regex> regex;  // none: the piece stays whole
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool is_inverted = false;        // matches and gaps change places
  bool adds_prefix_space = false;  // ByteLevel: a piece that does not begin with a space gets one
  std::string space;               // Metaspace: what spaces become; empty: they stay
  PrependScheme scheme = PrependScheme::kNever;
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
  /// the sink returns. `is_first`: nothing comes before `text`.
  void split(std::string_view text, bool is_first, Matchers& matchers, const Sink& sink) const;

 private:
  void run(size_t step, std::string_view piece, bool is_first, Matchers& matchers,
           const Sink& sink) const;

  std::vector<SplitStep> steps_;
};

}  // namespace kv
