#include "evaluate/frequency_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "evaluate/layout.h"
#include "evaluate/word_lists.h"
#include "evaluate/words.h"

namespace kv {
namespace {

constexpr size_t kCommon = 10, kFrequent = 3;
constexpr int kCodeSyllables = 3;
constexpr int64_t kLongListFrom = 4096;
// Single words are too few for a list of these lengths, whatever the tokenizer.
constexpr int64_t kPairsFrom = 1900, kPairsFromInLongLists = 6144;
constexpr int64_t kLeastOthers = 5;

/// Whether a line has this word between blanks.
bool has_word(std::string_view line, std::string_view word) {
  for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const bool begins = at == 0 || line[at - 1] == ' ';
    const char next = at + word.size() < line.size() ? line[at + word.size()] : ' ';
    if (begins && (next == ' ' || next == '\n')) return true;
  }
  return false;
}

/// A list of any size: the same size gives the same lines.
class WordList {
 public:
  virtual ~WordList() = default;
  virtual std::string heading() const = 0;
  virtual const AskedText& asked() const = 0;
  virtual std::vector<std::string> lines(int64_t size) = 0;
  virtual int64_t least_size() const = 0;
  /// A size that costs more than `tokens`.
  virtual int64_t too_large(int64_t tokens) const = 0;
};

/// Ten words that occur often among words that occur seldom; numbered. Size: how many others.
class CommonWords : public WordList {
 public:
  CommonWords(Form form, int64_t target, uint64_t seed, uint64_t order_seed)
      : words_(form, seed),
        order_seed_(order_seed),
        is_long_(target >= kLongListFrom),
        has_keys_(form == Form::kCompact ||
                  target >= (target < kLongListFrom ? kPairsFrom : kPairsFromInLongLists)) {
    if (!has_keys_) {
      std::set<std::string_view> all(word_lists::nouns().begin(), word_lists::nouns().end());
      all.insert(word_lists::adjectives().begin(), word_lists::adjectives().end());
      pool_.assign(all.begin(), all.end());
      shuffle(pool_, words_.random());
    }
    std::vector<std::string> common;
    for (size_t i = 0; i < kCommon; ++i) common.push_back(word(i));
    const double supply =
        !has_keys_ ? static_cast<double>(pool_.size())
        : form == Form::kCompact
            ? WordMaker::num_made_up(3)
            : static_cast<double>(word_lists::nouns().size() * word_lists::adjectives().size());
    asked_ = asked_for_all("The ten most common words:", std::move(common), supply);
  }

  std::string heading() const override { return "List of words:\n"; }
  const AskedText& asked() const override { return asked_; }
  int64_t least_size() const override { return kLeastOthers; }
  // A line has a number, a full stop, a word and a newline.
  int64_t too_large(int64_t tokens) const override { return tokens / (is_long_ ? 12 : 4) + 1; }

  std::vector<std::string> lines(int64_t size) override {
    const size_t often = is_long_ ? 30 : 6, seldom = is_long_ ? 3 : 1;
    std::vector<size_t> order;
    for (size_t i = 0; i < kCommon + static_cast<size_t>(size); ++i) {
      order.insert(order.end(), i < kCommon ? often : seldom, i);
    }
    SplitMix64 random(order_seed_);
    shuffle(order, random);
    std::vector<std::string> out;
    for (const size_t i : order) out.push_back(fmt::format("{}. {}\n", out.size() + 1, word(i)));
    return out;
  }

 private:
  std::string word(size_t i) {
    if (!has_keys_) return std::string(pool_[i % pool_.size()]);
    while (keys_.size() <= i) keys_.push_back(words_.key());
    return keys_[i];
  }

  WordMaker words_;
  uint64_t order_seed_;
  bool is_long_, has_keys_;
  std::vector<std::string_view> pool_;  // shuffled
  std::vector<std::string> keys_;
  AskedText asked_;
};

/// Coded words whose counts fall with the square of their rank; the most frequent word is noise.
/// Size: how many words in all.
class FrequentWords : public WordList {
 public:
  FrequentWords(Form form, uint64_t seed, uint64_t order_seed)
      : words_(form, seed), order_seed_(order_seed) {
    std::vector<std::string> most;
    for (size_t i = 1; i <= kFrequent; ++i) most.push_back(word(i));
    asked_ = asked_for_all("The three most frequent coded words:", std::move(most),
                           WordMaker::num_made_up(kCodeSyllables));
  }

  std::string heading() const override { return "Coded text:\n"; }
  const AskedText& asked() const override { return asked_; }
  // Below, the third of the words that are asked for may be no more frequent than the next one.
  int64_t least_size() const override { return 74; }
  int64_t too_large(int64_t tokens) const override { return tokens + 1; }

  std::vector<std::string> lines(int64_t size) override {
    constexpr size_t kWordsOnALine = 12;
    std::vector<size_t> order;
    for (size_t rank = 1; std::ssize(order) < size; ++rank) {
      const int64_t room = size - std::ssize(order);
      order.insert(order.end(), static_cast<size_t>(std::min(room, count(size, rank))), rank - 1);
    }
    SplitMix64 random(order_seed_);
    shuffle(order, random);
    std::vector<std::string> out;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i % kWordsOnALine == 0) out.emplace_back();
      out.back() += word(order[i]);
      out.back() += (i + 1) % kWordsOnALine == 0 || i + 1 == order.size() ? '\n' : ' ';
    }
    return out;
  }

 private:
  /// Zipf's law with exponent 2; words that would occur less than once occur once.
  static int64_t count(int64_t size, size_t rank) {
    constexpr double kZeta = 1.6449340668482264;  // sum of 1 / r^2
    const auto r = static_cast<double>(rank);
    return std::max<int64_t>(std::llround(static_cast<double>(size) / (kZeta * r * r)), 1);
  }

  std::string word(size_t i) {
    if (i == 0) return "...";
    while (codes_.size() < i) {
      codes_.push_back(words_.fresh([&] { return words_.made_up_word(kCodeSyllables); }));
    }
    return codes_[i - 1];
  }

  WordMaker words_;
  uint64_t order_seed_;
  std::vector<std::string> codes_;
  AskedText asked_;
};

class FrequencyTask : public Task {
 public:
  FrequencyTask(bool is_common, Form form, const FillerMaker& filler)
      : is_common_(is_common), form_(form), filler_(filler) {}

  std::string tail() const override { return "\nFrom the list above:\n"; }

  std::vector<Sample> samples() const override {
    std::vector<Sample> out;
    for (const uint64_t seed : {1, 2, 3, 4}) {
      const auto list = make_list(0, seed, seed);
      out.push_back({list->lines(list->least_size()).back(), list->asked()});
    }
    return out;
  }

  Draft draft(const DraftRequest& request) const override {
    const auto list = make_list(request.target, request.seed(1), request.seed(4));
    SplitMix64 random(request.seed(2));
    Draft out;
    out.asked = {list->asked()};
    give_equal_room(request, filler_, out.asked);
    const Line heading = {list->heading(), filler_.cost(list->heading())};
    const int64_t room = room_beside(request, out.asked, {}) - heading.tokens;
    std::vector<Line> lines = longest_list(request, *list, room);
    int64_t rest = room;
    for (const Line& line : lines) rest -= line.tokens;
    out.lines = filler_.lines(rest, random);
    out.lines.push_back(heading);
    find_needles(out.asked[0], lines, out.lines.size());
    out.lines.insert(out.lines.end(), lines.begin(), lines.end());
    return out;
  }

 private:
  std::unique_ptr<WordList> make_list(int64_t target, uint64_t seed, uint64_t order_seed) const {
    if (is_common_) return std::make_unique<CommonWords>(form_, target, seed, order_seed);
    return std::make_unique<FrequentWords>(form_, seed, order_seed);
  }

  std::vector<Line> priced(std::vector<std::string> texts) const {
    std::vector<Line> out;
    for (std::string& text : texts) {
      const int64_t cost = filler_.cost(text);
      out.push_back({std::move(text), cost});
    }
    return out;
  }

  /// The longest list that leaves nothing of `room`, or enough for a line of other text.
  std::vector<Line> longest_list(const DraftRequest& request, WordList& list, int64_t room) const {
    const auto left = [&](const std::vector<Line>& lines) {
      int64_t out = room;
      for (const Line& line : lines) out -= line.tokens;
      return out;
    };
    int64_t fits = list.least_size() - 1, too_long = std::max(list.too_large(room), fits + 1);
    while (too_long - fits > 1) {
      const int64_t size = fits + (too_long - fits) / 2;
      (left(priced(list.lines(size))) >= 0 ? fits : too_long) = size;
    }
    for (int64_t size = fits; size >= list.least_size(); --size) {
      std::vector<Line> lines = priced(list.lines(size));
      const int64_t rest = left(lines);
      if (rest == 0 || rest >= FillerMaker::kLeastTokens) return lines;
    }
    request.refuse("the list does not fit");
  }

  /// The first line with each of the words.
  static void find_needles(AskedText& asked, const std::vector<Line>& lines, size_t first) {
    std::set<size_t> found;
    for (const std::string& word : asked.accepted) {
      const auto line = std::find_if(lines.begin(), lines.end(),
                                     [&](const Line& one) { return has_word(one.text, word); });
      found.insert(first + static_cast<size_t>(line - lines.begin()));
    }
    asked.needles.assign(found.begin(), found.end());
  }

  bool is_common_;
  Form form_;
  const FillerMaker& filler_;
};

}  // namespace

std::unique_ptr<Task> make_frequency_task(const GeneratorOptions& options,
                                          const FillerMaker& filler) {
  if (options.task != "common_words" && options.task != "freq_words") return nullptr;
  return std::make_unique<FrequencyTask>(options.task == "common_words", options.form, filler);
}

}  // namespace kv
