#include "evaluate/facts.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "evaluate/word_lists.h"
#include "kvscale/error.h"

namespace kv {
namespace {

// The built-in model keeps one token for each of these syllables.
constexpr std::string_view kConsonants = "bdfghjklmnprstvwz", kVowels = "aeiou";
constexpr size_t kNumSyllables = kConsonants.size() * kVowels.size();

// Sizes of the compact form are those of models/tiny/FORMATS.md.
constexpr int kKeySyllables = 3, kValueSyllables = 4, kSpanSyllables = 2;
constexpr int kSpanWords = 8;
constexpr int kMagicDigits = 7, kValueDigits = 5;

// One needle of a form: with a second one of the same form in the context the task would be
// niah_multikey, which is harder. A document asks as many questions as there are forms before one
// comes again.
constexpr std::string_view kNeedles[] = {
    "One of the special magic numbers for {} is:",
    "The telephone number of the {} office is",
    "The locker at the {} station opens with the code",
    "Visitors of the {} museum since it was founded:",
    "The serial number on the {} engine reads",
    "The order of the {} bakery has the invoice number",
    "Inhabitants of the {} district at the last census:",
    "The library card of the {} reader carries the digits",
    "The patent on the {} valve was filed under",
    "The winning ticket of the {} lottery was",
    "Seconds in the air, from the log of the {} pilot:",
    "In the {} warehouse the missing parcel has label",
    "Donations to the {} foundation so far, in pence:",
    "A sounding at the {} reef gave a depth in microns of",
    "The new star seen by the {} telescope is catalogued as",
    "The terminal in the {} tower unlocks with the password",
};

std::string made_up_word(int syllables, SplitMix64& random) {
  std::string out;
  for (int i = 0; i < syllables; ++i) {
    out += kConsonants[static_cast<size_t>(random.below(kConsonants.size()))];
    out += kVowels[static_cast<size_t>(random.below(kVowels.size()))];
  }
  return out;
}

/// A number of exactly this many digits.
std::string number(int digits, SplitMix64& random) {
  const auto least = static_cast<uint64_t>(std::llround(std::pow(10.0, digits - 1)));
  return fmt::format("{}", least + random.below(9 * least));
}

std::vector<size_t> shuffled(size_t n, SplitMix64& random) {
  std::vector<size_t> out(n);
  std::iota(out.begin(), out.end(), size_t{0});
  for (size_t i = n; i > 1; --i) {
    std::swap(out[i - 1], out[static_cast<size_t>(random.below(i))]);
  }
  return out;
}

}  // namespace

FactMaker::FactMaker(std::string task, Form form, uint64_t seed)
    : task_(std::move(task)),
      form_(form),
      random_(seed),
      nouns_(shuffled(word_lists::nouns().size(), random_)),
      adjectives_(shuffled(word_lists::adjectives().size(), random_)) {}

/// Plain keys go once through all nouns before a noun comes again, then with another adjective:
/// keys of short contexts differ in both words.
std::string FactMaker::key() {
  if (form_ == Form::kCompact) {
    std::string word;
    do word = made_up_word(kKeySyllables, random_);
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

std::string FactMaker::answer() {
  if (task_ == "niah_single") return " " + number(kMagicDigits, random_);
  if (task_ == "kv_recall") {
    return " " + (form_ == Form::kPlain ? number(kValueDigits, random_)
                                        : made_up_word(kValueSyllables, random_));
  }
  std::string span;
  for (int i = 0; i < kSpanWords; ++i) {
    if (form_ == Form::kCompact) {
      span += " " + made_up_word(kSpanSyllables, random_);
    } else {
      const auto words = i % 2 == 0 ? word_lists::adjectives() : word_lists::nouns();
      span += fmt::format(" {}", words[static_cast<size_t>(random_.below(words.size()))]);
    }
  }
  return span;
}

std::string FactMaker::fresh_answer() {
  while (true) {
    std::string drawn = answer();
    if (used_answers_.insert(drawn).second) return drawn;
  }
}

Fact FactMaker::next() {
  std::string name = key();
  Fact fact;
  fact.answer = fresh_answer();
  if (task_ == "niah_single") {
    // The built-in model knows the first form only.
    const size_t form = form_ == Form::kPlain ? num_needles_++ % std::size(kNeedles) : 0;
    fact.question = fmt::format(fmt::runtime(kNeedles[form]), name);
    fact.end = ".";
  } else if (task_ == "kv_recall") {
    fact.question = name + ":";
  } else {
    fact.question = fmt::format("Passage {}:", name);
  }
  return fact;
}

double FactMaker::chance() const {
  if (task_ == "niah_single") return 1 / (9 * std::pow(10.0, kMagicDigits - 1));
  const bool is_plain = form_ == Form::kPlain;
  if (task_ == "kv_recall") {
    return is_plain ? 1 / (9 * std::pow(10.0, kValueDigits - 1))
                    : std::pow(1.0 / kNumSyllables, kValueSyllables);
  }
  // copy_span is scored by the share of its tokens that come before the first miss; of a guess
  // hardly more than the first of the span's words or syllables is ever right.
  const double first =
      is_plain ? 1.0 / static_cast<double>(word_lists::adjectives().size()) : 1.0 / kNumSyllables;
  return first / (kSpanWords * (is_plain ? 1 : kSpanSyllables));
}

}  // namespace kv
