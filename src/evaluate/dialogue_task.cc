#include "evaluate/dialogue_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evaluate/layout.h"
#include "evaluate/word_lists.h"
#include "evaluate/words.h"

namespace kv {
namespace {

constexpr int64_t kLeastRequests = 4;
constexpr int kTagLetters = 10;
// Similarity of two different answers: what one gets who gives the tag and the wrong answer. Of
// 2,000 pairs the mean was 0.380, with a standard error of 0.002.
constexpr double kChance = 0.38;

constexpr std::string_view kForms[] = {"tale", "poem", "letter", "riddle", "toast", "song"};

/// What is asked of the writer.
struct Order {
  std::string_view form, topic;

  bool operator==(const Order&) const = default;
  std::string text() const { return fmt::format("User: Write a {} about the {}.\n", form, topic); }
};

Order any_order(WordMaker& words) {
  const std::string_view form = words.pick(kForms);
  return {form, words.pick(word_lists::nouns())};
}

/// Another form or another topic, never both.
Order near_miss(const Order& order, WordMaker& words) {
  Order out = order;
  const bool is_form = words.random().below(2) == 0;
  while (out == order) {
    if (is_form) {
      out.form = words.pick(kForms);
    } else {
      out.topic = words.pick(word_lists::nouns());
    }
  }
  return out;
}

std::string written_answer(WordMaker& words) {
  return words.fresh([&] {
    const std::string first = FillerMaker::sentence(words.random());
    return fmt::format(" {} {}", first, FillerMaker::sentence(words.random()));
  });
}

std::string turn(const Order& order, std::string_view answer) {
  return fmt::format("{}Assistant:{}\n", order.text(), answer);
}

std::string new_tag(WordMaker& words) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  std::string out;
  for (int i = 0; i < kTagLetters; ++i) {
    out += kLetters[static_cast<size_t>(words.random().below(kLetters.size()))];
  }
  return out;
}

std::string ordinal(int64_t n) {
  const bool is_teen = n / 10 % 10 == 1;
  const int64_t last = is_teen ? 0 : n % 10;
  return fmt::format("{}{}", n, last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

AskedText asked_again(const Order& order, int64_t number, const std::string& answer,
                      WordMaker& words) {
  AskedText out;
  out.tag = words.fresh([&] { return new_tag(words); });
  out.question = fmt::format("User: Repeat the {} {} about the {}, after the word {}.\nAssistant:",
                             ordinal(number), order.form, order.topic, out.tag);
  out.answer = fmt::format(" {}{}", out.tag, answer);
  out.check = Check::kSimilarity;
  out.accepted = {answer.substr(1)};
  out.chance = kChance;
  return out;
}

class DialogueTask : public Task {
 public:
  DialogueTask(Form form, const FillerMaker& filler) : form_(form), filler_(filler) {}

  std::string tail() const override { return "\n"; }

  std::vector<Sample> samples() const override {
    WordMaker words(form_, 0);
    std::vector<Sample> out;
    for (int64_t i = 1; i <= 8; ++i) {
      const Order order = any_order(words);
      const std::string answer = written_answer(words);
      out.push_back({turn(order, answer), asked_again(order, i, answer, words)});
    }
    return out;
  }

  Draft draft(const DraftRequest& request) const override {
    WordMaker words(form_, request.seed(1));
    SplitMix64 random(request.seed(2));
    const Order order = any_order(words);
    std::vector<AskedText> asked;
    std::vector<NeedleLine> needles = requests_at(request, random);
    for (NeedleLine& needle : needles) {
      const std::string answer = written_answer(words);
      needle.text = turn(order, answer);
      needle.cost = filler_.cost(needle.text);
      const int64_t number = 1 + (&needle - needles.data());
      if (needle.asked == NeedleLine::kNobody) continue;
      needle.asked = asked.size();
      asked.push_back(asked_again(order, number, answer, words));
    }
    give_equal_room(request, filler_, asked);
    const int64_t room = room_beside(request, asked, needles);
    if (room < 0) request.refuse("the requests do not fit");
    return weave(near_misses(order, room, words, random), room, std::move(asked),
                 std::move(needles));
  }

 private:
  /// Where the requests stand, in the order of the text: those that are asked for (0) and others.
  static std::vector<NeedleLine> requests_at(const DraftRequest& request, SplitMix64& random) {
    std::vector<NeedleLine> out;
    for (const double depth : request.depths) out.push_back({depth, "", 0});
    while (std::ssize(out) < kLeastRequests) out.push_back({random.uniform(), ""});
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.depth < b.depth; });
    return out;
  }

  /// Turns that cost `room` together; what is left over is prose before the first of them.
  std::vector<Line> near_misses(const Order& order, int64_t room, WordMaker& words,
                                SplitMix64& random) const {
    std::vector<Line> turns;
    while (room > 0) {
      std::string text = turn(near_miss(order, words), written_answer(words));
      const int64_t cost = filler_.cost(text);
      turns.push_back({std::move(text), cost});
      room -= cost;
    }
    while (room != 0 && room < FillerMaker::kLeastTokens && !turns.empty()) {
      room += turns.back().tokens;
      turns.pop_back();
    }
    std::vector<Line> out = filler_.lines(room, random);
    out.insert(out.end(), std::make_move_iterator(turns.begin()),
               std::make_move_iterator(turns.end()));
    return out;
  }

  Form form_;
  const FillerMaker& filler_;
};

}  // namespace

std::unique_ptr<Task> make_dialogue_task(const GeneratorOptions& options,
                                         const FillerMaker& filler) {
  if (options.task != "mrcr_like") return nullptr;
  return std::make_unique<DialogueTask>(options.form, filler);
}

}  // namespace kv
