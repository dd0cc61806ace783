#include "evaluate/filler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "evaluate/word_lists.h"
#include "kvscale/error.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

template <class Words>
std::string_view pick(const Words& words, SplitMix64& random) {
  return words[static_cast<size_t>(random.below(words.size()))];
}

std::string noun_phrase(SplitMix64& random) {
  const auto adjective = pick(word_lists::adjectives(), random);
  return fmt::format("{} {}", adjective, pick(word_lists::nouns(), random));
}

void capitalise(std::string& text) {
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
}

}  // namespace

FillerMaker::FillerMaker(const Tokenizer& tokenizer, Filler kind)
    : tokenizer_(tokenizer), kind_(kind) {
  for (const auto list : {word_lists::nouns(), word_lists::adjectives()}) {
    for (const std::string_view word : list) {
      words_.push_back(word);
      costs_.push_back(cost(fmt::format(" {}", word)));
    }
  }
  least_cost_ = *std::min_element(costs_.begin(), costs_.end());
}

/// One of four patterns with words drawn.
std::string FillerMaker::sentence(SplitMix64& random) {
  const std::string subject = noun_phrase(random);
  const auto verb = pick(word_lists::verbs(), random);
  const std::string object = noun_phrase(random);
  const auto place = pick(word_lists::prepositions(), random);
  const auto where = pick(word_lists::nouns(), random);
  switch (random.below(4)) {
    case 0:
      return fmt::format("The {} {} the {}.", subject, verb, object);
    case 1:
      return fmt::format("The {} {} the {} {} the {}.", subject, verb, object, place, where);
    case 2:
      return fmt::format("Once the {} {} the {}, and nobody {} the {}.", subject, verb, object,
                         pick(word_lists::verbs(), random), where);
    default: {
      std::string text =
          fmt::format("{} the {} the {} {} the {}.", place, where, subject, verb, object);
      capitalise(text);
      return text;
    }
  }
}

int64_t FillerMaker::cost(std::string_view text) const {
  return static_cast<int64_t>(tokenizer_.encode(text, false).size());
}

Line FillerMaker::paragraph(SplitMix64& random) const {
  Line line;
  if (kind_ == Filler::kRepeat) {
    line.text = fmt::format("{}\n", fmt::join(word_lists::repeated_sentences(), " "));
  } else {
    line.text = sentence(random);
    for (uint64_t more = random.below(3); more > 0; --more) line.text += " " + sentence(random);
    line.text += "\n";
  }
  line.tokens = cost(line.text);
  return line;
}

/// Appends words and a full stop so that the text costs exactly `tokens`; false if these words
/// missed.
bool FillerMaker::finish_sentence(std::string& text, int64_t tokens, SplitMix64& random) const {
  while (true) {
    const int64_t missing = tokens - cost(text + ".\n");
    if (missing <= 0) {
      text += ".\n";
      return missing == 0;
    }
    // Most words fit; near the end only the short ones do.
    size_t word = 0;
    for (int attempt = 0; attempt < 30; ++attempt) {
      word = static_cast<size_t>(random.below(words_.size()));
      if (costs_[word] == missing || costs_[word] + least_cost_ <= missing) break;
    }
    text += " ";
    text += words_[word];
  }
}

Line FillerMaker::exact_line(int64_t tokens, SplitMix64& random) const {
  constexpr int kAttempts = 60;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string text(pick(words_, random));
    capitalise(text);
    if (finish_sentence(text, tokens, random)) return {std::move(text), tokens};
  }
  throw UnsupportedError(
      fmt::format("generator: this tokenizer does not allow a line of exactly {} tokens", tokens));
}

std::vector<Line> FillerMaker::lines(int64_t tokens, SplitMix64& random) const {
  std::vector<Line> out;
  while (tokens > 0) {
    Line line = tokens > 4 * kLeastTokens ? paragraph(random) : exact_line(tokens, random);
    const int64_t rest = tokens - line.tokens;
    if (rest != 0 && rest < kLeastTokens) line = exact_line(tokens, random);
    tokens -= line.tokens;
    out.push_back(std::move(line));
  }
  return out;
}

}  // namespace kv
