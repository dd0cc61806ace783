#include "evaluate/recall_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>

#include "evaluate/layout.h"
#include "evaluate/question_cut.h"
#include "evaluate/word_lists.h"
#include "evaluate/words.h"

namespace kv {
namespace {

// Sizes of the compact form are those of models/tiny/FORMATS.md.
constexpr int kValueSyllables = 4, kSpanSyllables = 2;
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
// Keys of niah_multikey that stand in the text, asked for or not.
constexpr size_t kLeastKeys = 4;

/// Something that a context says and a question asks for again: the line "question answer end".
struct Fact {
  std::string question;  // "quiet-harbor:"
  std::string answer;    // " 48213", with its leading space
  std::string_view end;  // what ends the sentence in the context: "" or "."

  std::string line() const { return fmt::format("{}{}{}\n", question, answer, end); }
};

/// A fact with its costs in tokens, as a line of the context and asked for.
struct PricedFact {
  Fact fact;
  int64_t line_cost = 0;
  int64_t asking_cost = 0;  // question and answer
};

/// Facts of one kind.
struct FactKind {
  std::string_view task;
  /// The key comes first, then what belongs to it; `number` counts a document's facts.
  Fact (*next)(WordMaker& words, Form form, size_t number);
  double (*chance)(Form form);
  Check check = Check::kExact;
  std::string_view heading = {};  // of a context that is a list of facts
};

Fact needle_of_its_own_form(WordMaker& words, Form form, size_t number) {
  const std::string key = words.key();
  std::string answer = words.fresh([&] { return " " + words.number(kMagicDigits); });
  // The built-in model knows the first form only.
  const size_t which = form == Form::kPlain ? number % std::size(kNeedles) : 0;
  return {fmt::format(fmt::runtime(kNeedles[which]), key), std::move(answer), "."};
}

Fact needle_of_one_form(WordMaker& words, Form form, size_t) {
  return needle_of_its_own_form(words, form, 0);
}

double chance_of_digits(int digits) { return 1 / (9 * std::pow(10.0, digits - 1)); }

Fact key_and_value(WordMaker& words, Form form, size_t) {
  std::string key = words.key();
  return {std::move(key) + ":", words.fresh([&] {
            return " " + (form == Form::kPlain ? words.number(kValueDigits)
                                               : words.made_up_word(kValueSyllables));
          }),
          ""};
}

double chance_of_value(Form form) {
  return form == Form::kPlain ? chance_of_digits(kValueDigits)
                              : 1 / WordMaker::num_made_up(kValueSyllables);
}

std::string span_of_words(WordMaker& words, Form form) {
  std::string span;
  for (int i = 0; i < kSpanWords; ++i) {
    span += ' ';
    if (form == Form::kCompact) {
      span += words.made_up_word(kSpanSyllables);
    } else {
      span += words.pick(i % 2 == 0 ? word_lists::adjectives() : word_lists::nouns());
    }
  }
  return span;
}

Fact passage(WordMaker& words, Form form, size_t) {
  const std::string key = words.key();
  return {fmt::format("Passage {}:", key), words.fresh([&] { return span_of_words(words, form); }),
          ""};
}

/// copy_span is scored by the share of its tokens that come before the first miss; of a guess
/// hardly more than the first of the span's words or syllables is ever right.
double chance_of_span(Form form) {
  const bool is_plain = form == Form::kPlain;
  const double first = is_plain ? 1.0 / static_cast<double>(word_lists::adjectives().size())
                                : 1 / WordMaker::num_made_up(1);
  return first / (kSpanWords * (is_plain ? 1 : kSpanSyllables));
}

double chance_of_magic_number(Form) { return chance_of_digits(kMagicDigits); }

constexpr std::array<FactKind, 4> kKinds = {
    {{"niah_single", needle_of_its_own_form, chance_of_magic_number},
     {"niah_multikey", needle_of_one_form, chance_of_magic_number},
     {"kv_recall", key_and_value, chance_of_value, Check::kExact,
      "List of keys and their values:\n"},
     {"copy_span", passage, chance_of_span, Check::kPrefix}}};

AskedText asked_for(const FactKind& kind, Form form, const Fact& fact) {
  AskedText out;
  out.question = fact.question;
  out.answer = fact.answer;
  out.check = kind.check;
  out.chance = kind.chance(form);
  return out;
}

/// Both layouts of facts: among running text, or a list of them that fills the context.
class RecallTask : public Task {
 public:
  RecallTask(const FactKind& kind, const GeneratorOptions& options, const FillerMaker& filler)
      : kind_(kind),
        form_(options.form),
        is_list_(!kind.heading.empty() || options.filler == Filler::kDistract),
        filler_(filler) {}

  std::string tail() const override {
    return kind_.heading.empty() ? Task::tail() : "\nFrom the list above:\n";
  }
  std::vector<Sample> samples() const override;
  Draft draft(const DraftRequest& request) const override {
    return is_list_ ? draft_list(request) : draft_text(request);
  }

 private:
  PricedFact price(const DraftRequest& request, Fact fact) const;
  std::vector<PricedFact> facts_of_like_cost(const DraftRequest& request, WordMaker& words) const;
  std::vector<size_t> choose_lines(const DraftRequest& request,
                                   const std::vector<PricedFact>& lines) const;
  Draft draft_list(const DraftRequest& request) const;
  Draft draft_text(const DraftRequest& request) const;

  const FactKind& kind_;
  Form form_;
  bool is_list_;
  const FillerMaker& filler_;
};

std::vector<Task::Sample> RecallTask::samples() const {
  constexpr size_t kSamples = 8;
  WordMaker words(form_, 0);
  std::vector<Sample> out;
  for (size_t i = 0; i < kSamples; ++i) {
    const Fact fact = kind_.next(words, form_, i);
    out.push_back({fact.line(), asked_for(kind_, form_, fact)});
  }
  return out;
}

PricedFact RecallTask::price(const DraftRequest& request, Fact fact) const {
  PricedFact out;
  out.line_cost = filler_.cost(fact.line());
  out.asking_cost = asking_cost(request, filler_, asked_for(kind_, form_, fact));
  out.fact = std::move(fact);
  return out;
}

std::vector<PricedFact> RecallTask::facts_of_like_cost(const DraftRequest& request,
                                                       WordMaker& words) const {
  constexpr size_t kAttempts = 3000;
  std::vector<PricedFact> out;
  for (size_t attempt = 0; attempt < kAttempts; ++attempt) {
    PricedFact drawn = price(request, kind_.next(words, form_, attempt));
    if (!out.empty() &&
        std::abs(drawn.asking_cost - out.front().asking_cost) > request.half_spread()) {
      continue;
    }
    out.push_back(std::move(drawn));
    if (std::ssize(out) == request.options.questions_per_document) return out;
  }
  request.refuse("too few keys of equal length in tokens");
}

/// Facts on lines of their own among running text.
Draft RecallTask::draft_text(const DraftRequest& request) const {
  WordMaker words(form_, request.seed(1));
  SplitMix64 random(request.seed(2));
  std::vector<NeedleLine> needles;
  std::vector<AskedText> asked;
  for (PricedFact& priced : facts_of_like_cost(request, words)) {
    needles.push_back(
        {request.depths[asked.size()], priced.fact.line(), asked.size(), priced.line_cost});
    asked.push_back(asked_for(kind_, form_, priced.fact));
    asked.back().cost = priced.asking_cost;
  }
  while (kind_.task == "niah_multikey" && needles.size() < kLeastKeys) {
    const PricedFact other = price(request, kind_.next(words, form_, 0));
    needles.push_back({random.uniform(), other.fact.line(), NeedleLine::kNobody, other.line_cost});
  }
  return weave_into_text(request, filler_, std::move(asked), std::move(needles), random);
}

/// The lines to ask for: at each depth the nearest one whose question costs what most cost.
std::vector<size_t> RecallTask::choose_lines(const DraftRequest& request,
                                             const std::vector<PricedFact>& lines) const {
  std::map<int64_t, int64_t> count;
  for (const PricedFact& line : lines) ++count[line.asking_cost];
  const int64_t usual =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  std::vector<bool> is_taken(lines.size());
  const auto is_usable = [&](int64_t i) {
    return i >= 0 && i < std::ssize(lines) && !is_taken[static_cast<size_t>(i)] &&
           std::abs(lines[static_cast<size_t>(i)].asking_cost - usual) <= request.half_spread();
  };
  std::vector<size_t> out;
  for (const double depth : request.depths) {
    const auto wanted = static_cast<int64_t>(depth * static_cast<double>(lines.size()));
    int64_t distance = 0;
    while (!is_usable(wanted - distance) && !is_usable(wanted + distance)) {
      if (++distance > std::ssize(lines)) request.refuse("too few lines");
    }
    const int64_t found = is_usable(wanted + distance) ? wanted + distance : wanted - distance;
    is_taken[static_cast<size_t>(found)] = true;
    out.push_back(static_cast<size_t>(found));
  }
  return out;
}

/// Lines of facts; what is left of the length is running text before them.
Draft RecallTask::draft_list(const DraftRequest& request) const {
  WordMaker words(form_, request.seed(1));
  SplitMix64 random(request.seed(2));
  std::vector<PricedFact> facts = {price(request, kind_.next(words, form_, 0))};
  const Line heading = {std::string(kind_.heading), filler_.cost(kind_.heading)};
  int64_t room = request.tokens - heading.tokens - facts[0].asking_cost - facts[0].line_cost;
  while (room > 0) {
    facts.push_back(price(request, kind_.next(words, form_, facts.size())));
    room -= facts.back().line_cost;
  }
  while (room != 0 && room < FillerMaker::kLeastTokens && !facts.empty()) {
    room += facts.back().line_cost;
    facts.pop_back();
  }
  if (std::ssize(facts) < request.options.questions_per_document) {
    request.refuse("fewer lines fit than are asked for");
  }
  Draft out;
  out.lines = filler_.lines(room, random);
  if (!heading.text.empty()) out.lines.push_back(heading);
  const size_t first = out.lines.size();
  for (const PricedFact& one : facts) out.lines.push_back({one.fact.line(), one.line_cost});
  for (const size_t line : choose_lines(request, facts)) {
    out.asked.push_back(asked_for(kind_, form_, facts[line].fact));
    out.asked.back().cost = facts[line].asking_cost;
    out.asked.back().needles = {first + line};
  }
  return out;
}

}  // namespace

std::unique_ptr<Task> make_recall_task(const GeneratorOptions& options, const FillerMaker& filler) {
  for (const FactKind& kind : kKinds) {
    if (kind.task == options.task) return std::make_unique<RecallTask>(kind, options, filler);
  }
  return nullptr;
}

}  // namespace kv
