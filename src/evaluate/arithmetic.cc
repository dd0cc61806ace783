#include "evaluate/arithmetic.h"

#include <fmt/format.h>

namespace kv {
namespace {

constexpr int64_t kLeastSteps = 3, kMostSteps = 8;
// Results stay where a guess is hardly ever right and every step can be done in the head.
constexpr int64_t kLeastResult = 10, kMostResult = 500;

int64_t between(int64_t least, int64_t most, SplitMix64& random) {
  return least + static_cast<int64_t>(random.below(static_cast<uint64_t>(most - least + 1)));
}

/// A problem as it grows.
struct Story {
  std::string text, solution;
  int64_t value = 0;

  void step(std::string_view sentence, char sign, int64_t by, int64_t result) {
    text += sentence;
    solution +=
        fmt::format("{}{} {} {} = {}", solution.empty() ? " " : ", ", value, sign, by, result);
    value = result;
  }
};

/// One of four kinds of step, as far as the value allows it.
void take_step(Story& story, SplitMix64& random) {
  const int64_t by = between(2, 60, random), factor = between(2, 3, random);
  switch (random.below(4)) {
    case 0:
      if (story.value * factor > kMostResult) break;
      return story.step(fmt::format(" Then there are {} times as many.", factor), '*', factor,
                        story.value * factor);
    case 1:
      if (story.value % 2 != 0 || story.value < 4) break;
      return story.step(" Then half of them are given away.", '/', 2, story.value / 2);
    case 2:
      if (story.value <= by) break;
      return story.step(fmt::format(" Then {} are sold.", by), '-', by, story.value - by);
    default:
      break;
  }
  story.step(fmt::format(" Then {} more arrive.", by), '+', by, story.value + by);
}

Story tell(const std::string& key, int64_t steps, SplitMix64& random) {
  while (true) {
    Story story;
    story.value = between(5, 60, random);
    story.text = fmt::format("Problem {}: The shop has {} boxes.", key, story.value);
    for (int64_t i = 0; i < steps; ++i) take_step(story, random);
    if (story.value < kLeastResult || story.value > kMostResult) continue;
    story.text += " How many boxes are there now?\n";
    story.solution += fmt::format(" #### {}", story.value);
    return story;
  }
}

std::string opening(const std::string& key) { return fmt::format("Solution of problem {}:", key); }

}  // namespace

NeedleGroup word_problem(WordMaker& words, Form, int64_t) {
  const std::string key = words.key();
  Story story = tell(key, between(kLeastSteps, kMostSteps, words.random()), words.random());
  NeedleGroup out;
  out.lines = {std::move(story.text)};
  out.asked.question = opening(key);
  out.asked.answer = std::move(story.solution);
  out.asked.check = Check::kRegex;
  out.asked.accepted = {fmt::format("#### *{}(?![0-9]|[.,][0-9])", story.value)};
  // No result is as frequent as this (a test counts them).
  out.asked.chance = 0.01;
  return out;
}

std::string worked_example(WordMaker& words, Form) {
  const std::string key = words.key();
  const Story story = tell(key, kLeastSteps, words.random());
  return story.text + opening(key) + story.solution + "\n";
}

}  // namespace kv
