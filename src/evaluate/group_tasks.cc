#include "evaluate/group_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "evaluate/arithmetic.h"
#include "evaluate/layout.h"

namespace kv {
namespace {

constexpr int64_t kValuesAsked = 4, kHops = 4;
constexpr int kLongNumber = 7, kVariableValue = 5, kNameLetters = 5, kNameSyllables = 3;
constexpr int64_t kMostVotes = 12;  // of one name
// What a line among others is taken to cost where their number is chosen.
constexpr int64_t kLineTokens = 16;

std::string magic_line(std::string_view key, std::string_view value) {
  return fmt::format("One of the special magic numbers for {} is: {}.\n", key, value);
}

std::string fresh_magic_number(WordMaker& words) {
  return words.fresh([&] { return words.number(kLongNumber); });
}

double magic_numbers() { return 9 * std::pow(10.0, kLongNumber - 1); }

NeedleGroup values_of_one_key(WordMaker& words, Form, int64_t) {
  const std::string key = words.key();
  NeedleGroup out;
  std::vector<std::string> values;
  for (int64_t i = 0; i < kValuesAsked; ++i) {
    values.push_back(fresh_magic_number(words));
    out.lines.push_back(magic_line(key, values.back()));
  }
  out.asked = asked_for_all(fmt::format("All special magic numbers for {}:", key),
                            std::move(values), magic_numbers());
  return out;
}

NeedleGroup values_of_many_keys(WordMaker& words, Form, int64_t) {
  NeedleGroup out;
  std::vector<std::string> keys, values;
  for (int64_t i = 0; i < kValuesAsked; ++i) {
    keys.push_back(words.key());
    values.push_back(fresh_magic_number(words));
    out.lines.push_back(magic_line(keys.back(), values.back()));
  }
  out.asked = asked_for_all(
      fmt::format("The special magic numbers for {}, in this order:", fmt::join(keys, ", ")),
      std::move(values), magic_numbers());
  return out;
}

std::string variable_name(WordMaker& words, Form form) {
  if (form == Form::kCompact) return words.made_up_word(kNameSyllables);
  std::string out;
  for (int i = 0; i < kNameLetters; ++i) {
    out += static_cast<char>('A' + static_cast<int>(words.random().below(26)));
  }
  return out;
}

/// A value, and variables of which each is set to the one before.
NeedleGroup chain_of_variables(WordMaker& words, Form form, int64_t) {
  const std::string value = words.fresh([&] { return words.number(kVariableValue); });
  NeedleGroup out;
  std::vector<std::string> names;
  for (int64_t hop = 0; hop <= kHops; ++hop) {
    std::string name = words.fresh([&] { return variable_name(words, form); });
    out.lines.push_back(names.empty() ? fmt::format("VAR {} = {}\n", name, value)
                                      : fmt::format("VAR {} = VAR {}\n", name, names.back()));
    names.push_back(std::move(name));
  }
  out.asked = asked_for_all(
      fmt::format("All variables with the value {}:", value), std::move(names),
      form == Form::kCompact ? WordMaker::num_made_up(kNameSyllables) : std::pow(26, kNameLetters));
  return out;
}

/// As many equal lines as are to be counted.
NeedleGroup votes_of_one_name(WordMaker& words, Form, int64_t most) {
  const std::string key = words.key();
  const auto votes = static_cast<size_t>(1 + words.random().below(static_cast<uint64_t>(most)));
  NeedleGroup out;
  out.lines.assign(votes, fmt::format("One vote was given to {}.\n", key));
  out.asked.question = fmt::format("Number of votes given to {}:", key);
  out.asked.answer = fmt::format(" {}", votes);
  out.asked.check = Check::kNumber;
  out.asked.accepted = {fmt::format("{}", votes)};
  out.asked.chance = 1 / static_cast<double>(most);
  return out;
}

constexpr std::array<GroupKind, 5> kGroupKinds = {
    {{"niah_multivalue", values_of_one_key},
     {"niah_multiquery", values_of_many_keys},
     {"var_track", chain_of_variables, 2},
     {"count", votes_of_one_name, 2, 6, 3},
     {"arith_chain", word_problem, 1, 16, 0, worked_example}}};

class GroupTask : public Task {
 public:
  GroupTask(const GroupKind& kind, const GeneratorOptions& options, const FillerMaker& filler)
      : kind_(kind), form_(options.form), filler_(filler) {}

  std::vector<Sample> samples() const override {
    constexpr int kSamples = 8;
    WordMaker words(form_, 0);
    std::vector<Sample> out;
    for (int i = 0; i < kSamples; ++i) {
      NeedleGroup group = kind_.next(words, form_, kMostVotes);
      out.push_back({std::move(group.lines.back()), std::move(group.asked)});
    }
    return out;
  }

  Draft draft(const DraftRequest& request) const override {
    WordMaker words(form_, request.seed(1));
    SplitMix64 random(request.seed(2));
    const int64_t groups = std::max(kind_.least_groups, request.options.questions_per_document);
    const int64_t most = std::min(kMostVotes, request.tokens / (2 * groups * kLineTokens));
    if (most < kind_.least_most) request.refuse("too few lines fit");
    std::vector<AskedText> asked;
    std::vector<NeedleLine> needles;
    if (kind_.preamble != nullptr) {
      needles.push_back({-1, kind_.preamble(words, form_), NeedleLine::kNobody});
    }
    for (int64_t i = 0; i < groups; ++i) {
      NeedleGroup group = kind_.next(words, form_, most);
      const bool is_asked = i < request.options.questions_per_document;
      const double first = is_asked ? request.depths[asked.size()] : random.uniform();
      const size_t number = is_asked ? asked.size() : NeedleLine::kNobody;
      const std::vector<double> depths = depths_from(first, group.lines.size(), random);
      for (size_t line = 0; line < depths.size(); ++line) {
        needles.push_back({depths[line], std::move(group.lines[line]), number});
      }
      if (is_asked) asked.push_back(std::move(group.asked));
    }
    for (NeedleLine& needle : needles) needle.cost = filler_.cost(needle.text);
    give_equal_room(request, filler_, asked, kind_.spare);
    return weave_into_text(request, filler_, std::move(asked), std::move(needles), random);
  }

 private:
  const GroupKind& kind_;
  Form form_;
  const FillerMaker& filler_;
};

}  // namespace

std::unique_ptr<Task> make_group_task(const GeneratorOptions& options, const FillerMaker& filler) {
  for (const GroupKind& kind : kGroupKinds) {
    if (kind.task == options.task) return std::make_unique<GroupTask>(kind, options, filler);
  }
  return nullptr;
}

}  // namespace kv
