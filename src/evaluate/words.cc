#include "evaluate/words.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "evaluate/word_lists.h"
#include "kvscale/error.h"

namespace kv {
namespace {

// The built-in model keeps one token for each of these syllables.
constexpr std::string_view kConsonants = "bdfghjklmnprstvwz", kVowels = "aeiou";

// Sizes of the compact form are those of models/tiny/FORMATS.md.
constexpr int kKeySyllables = 3;

std::vector<size_t> shuffled_indices(size_t n, SplitMix64& random) {
  std::vector<size_t> out(n);
  std::iota(out.begin(), out.end(), size_t{0});
  shuffle(out, random);
  return out;
}

}  // namespace

WordMaker::WordMaker(Form form, uint64_t seed)
    : form_(form),
      random_(seed),
      nouns_(shuffled_indices(word_lists::nouns().size(), random_)),
      adjectives_(shuffled_indices(word_lists::adjectives().size(), random_)) {}

/// Plain keys go once through all nouns before a noun comes again, then with another adjective:
/// keys of short contexts differ in both words.
std::string WordMaker::key() {
  if (form_ == Form::kCompact) {
    std::string word;
    do word = made_up_word(kKeySyllables);
    while (!used_keys_.insert(word).second);
    return word;
  }
  if (num_keys_ == nouns_.size() * adjectives_.size()) {
    throw UnsupportedError(
        fmt::format("generator: a context of more than {} different keys is asked for", num_keys_));
  }
  const size_t noun = num_keys_ % nouns_.size(), round = num_keys_ / nouns_.size();
  const size_t adjective = (noun + round) % adjectives_.size();
  ++num_keys_;
  return fmt::format("{}-{}", word_lists::adjectives()[adjectives_[adjective]],
                     word_lists::nouns()[nouns_[noun]]);
}

std::string WordMaker::made_up_word(int syllables) {
  std::string out;
  for (int i = 0; i < syllables; ++i) {
    out += kConsonants[static_cast<size_t>(random_.below(kConsonants.size()))];
    out += kVowels[static_cast<size_t>(random_.below(kVowels.size()))];
  }
  return out;
}

std::string WordMaker::number(int digits) {
  const auto least = static_cast<uint64_t>(std::llround(std::pow(10.0, digits - 1)));
  return fmt::format("{}", least + random_.below(9 * least));
}

std::string_view WordMaker::pick(std::span<const std::string_view> words) {
  return words[static_cast<size_t>(random_.below(words.size()))];
}

double WordMaker::num_made_up(int syllables) {
  return std::pow(static_cast<double>(kConsonants.size() * kVowels.size()), syllables);
}

}  // namespace kv
