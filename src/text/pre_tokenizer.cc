#include "text/pre_tokenizer.h"

#include <string>

#include "text/replacer.h"

namespace kv {
namespace {

/// Joins neighbouring segments as a behaviour asks and passes on what stays.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, const std::function<void(Segment)>& sink)
      : behavior_(behavior), sink_(sink) {}

  void add(Segment segment) {
    if (behavior_ == SplitBehavior::kIsolated) return emit(segment);
    if (behavior_ == SplitBehavior::kRemoved) {
      if (!segment.is_match) emit(segment);
      return;
    }
    if (has_pending_ && joins(segment)) {
      pending_.end = segment.end;
      // With MergedWithNext a joined pair is complete; otherwise the pair counts as its last part.
      pending_.is_match = segment.is_match;
      previous_was_match_ = segment.is_match;
      return;
    }
    finish();
    pending_ = segment;
    has_pending_ = true;
    previous_was_match_ = segment.is_match;
  }

  void finish() {
    if (has_pending_) emit(pending_);
    has_pending_ = false;
  }

 private:
  bool joins(Segment segment) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious:
        return segment.is_match && !previous_was_match_;
      case SplitBehavior::kMergedWithNext:
        return previous_was_match_ && !segment.is_match;
      default:  // kContiguous
        return segment.is_match == previous_was_match_;
    }
  }

  void emit(Segment segment) {
    if (segment.begin < segment.end) sink_(segment);
  }

  SplitBehavior behavior_;
  const std::function<void(Segment)>& sink_;
  Segment pending_{};
  bool has_pending_ = false;
  bool previous_was_match_ = false;
};

}  // namespace

PreTokenizer::Matchers PreTokenizer::make_matchers() const {
  Matchers matchers;
  for (const SplitStep& step : steps_) {
    matchers.emplace_back();
    if (step.regex) matchers.back().emplace(*step.regex);
  }
  return matchers;
}

void PreTokenizer::split(std::string_view text, bool is_first, Matchers& matchers,
                         const Sink& sink) const {
  if (!text.empty()) run(0, text, is_first, matchers, sink);
}

namespace {

/// The piece with the spaces that the step spells and adds.
std::string respelled(const SplitStep& step, std::string_view piece, bool is_first) {
  std::string out;
  if (step.space.empty()) {
    if (step.adds_prefix_space && piece[0] != ' ') out += ' ';
    return out.append(piece);
  }
  out = Replacer{" ", std::nullopt, step.space}.apply(piece, nullptr);
  const bool adds =
      step.scheme == PrependScheme::kAlways || (step.scheme == PrependScheme::kFirst && is_first);
  if (adds && !out.starts_with(step.space)) out.insert(0, step.space);
  return out;
}

}  // namespace

void PreTokenizer::run(size_t index, std::string_view piece, bool is_first, Matchers& matchers,
                       const Sink& sink) const {
  if (index == steps_.size()) return sink(piece);
  const SplitStep& step = steps_[index];
  std::string changed;
  if (!step.space.empty() || (step.adds_prefix_space && piece[0] != ' ')) {
    changed = respelled(step, piece, is_first);
    piece = changed;
  }
  if (!step.regex) return run(index + 1, piece, is_first, matchers, sink);
  const std::function<void(Segment)> next = [&](Segment s) {
    run(index + 1, piece.substr(s.begin, s.end - s.begin), is_first && s.begin == 0, matchers,
        sink);
  };
  Joiner joiner(step.behavior, next);
  matchers[index]->for_each_segment(piece, [&](Segment s) {
    s.is_match = s.is_match != step.is_inverted;
    joiner.add(s);
  });
  joiner.finish();
}

}  // namespace kv
