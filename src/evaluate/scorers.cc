#include "evaluate/scorers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "evaluate/answers.h"
#include "evaluate/command_check.h"
#include "evaluate/similarity.h"
#include "kvscale/error.h"

namespace kv {
namespace {

constexpr std::array<std::pair<Check, std::string_view>, 10> kNames = {
    {{Check::kExact, "exact"},
     {Check::kPrefix, "prefix"},
     {Check::kContains, "contains"},
     {Check::kRegex, "regex"},
     {Check::kNumber, "number"},
     {Check::kJsonEqual, "json_equal"},
     {Check::kShare, "share"},
     {Check::kSimilarity, "similarity"},
     {Check::kTokenAccuracy, "token_accuracy"},
     {Check::kCommand, "command"}}};

Score invalid(std::string reason) { return {0, false, std::move(reason)}; }

Score score_numbers(std::string_view text, std::span<const std::string> accepted) {
  const std::optional<double> found = answers::last_number(text);
  if (!found) return invalid("no number in the answer");
  return {std::any_of(accepted.begin(), accepted.end(),
                      [&](const std::string& a) { return answers::parse_number(a) == found; })
              ? 1.0
              : 0.0};
}

Score score_patterns(std::string_view text, std::span<const std::string> accepted) {
  std::string trouble;
  for (const std::string& pattern : accepted) {
    const answers::Search result = answers::search(pattern, text);
    if (result.is_match) return {1};
    if (!result.trouble.empty()) trouble = result.trouble;
  }
  return trouble.empty() ? Score{0} : invalid(trouble);
}

Score score_json(std::string_view text, std::span<const std::string> accepted) {
  const answers::JsonText value = answers::first_json(text);
  if (!value.is_found) return invalid("no JSON in the answer");
  return {std::any_of(accepted.begin(), accepted.end(),
                      [&](const std::string& a) { return answers::same_json(a, value.text); })
              ? 1.0
              : 0.0};
}

bool is_word_byte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Whether a text has a word that no letter or digit goes on from.
bool has_whole(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool goes_on_left = at > 0 && is_word_byte(text[at - 1]) && is_word_byte(word.front());
    const bool goes_on_right =
        end < text.size() && is_word_byte(text[end]) && is_word_byte(word.back());
    if (!goes_on_left && !goes_on_right) return true;
  }
  return false;
}

Score score_share(std::string_view text, std::span<const std::string> accepted) {
  const auto found = std::ranges::count_if(
      accepted, [&](const std::string& a) { return has_whole(text, answers::trimmed(a)); });
  return {static_cast<double>(found) / static_cast<double>(accepted.size())};
}

Score score_similarity(std::string_view text, std::span<const std::string> accepted) {
  double best = 0;
  for (const std::string& answer : accepted) {
    best = std::max(best, similarity(answers::trimmed(text), answers::trimmed(answer)));
  }
  return {best};
}

Score score_commands(std::string_view text, std::span<const std::string> commands) {
  Score out;
  for (const std::string& command : commands) {
    const CommandResult result = run_command(command, text);
    if (result.end == CommandResult::End::kExit && result.status == 0) return {1};
    if (!result.reason.empty()) out = invalid(fmt::format("{}: {}", command, result.reason));
  }
  return out;
}

bool judges_tokens(Check check) {
  return check == Check::kExact || check == Check::kPrefix || check == Check::kTokenAccuracy;
}

}  // namespace

std::string_view name(Check check) {
  for (const auto& [value, text] : kNames) {
    if (value == check) return text;
  }
  throw ValueError(fmt::format("check: unknown number {}", static_cast<int>(check)));
}

std::optional<Check> check_from_name(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

Score score_tokens(Check check, std::span<const int32_t> expected,
                   std::span<const int32_t> produced) {
  if (!judges_tokens(check)) {
    throw ValueError(fmt::format(
        "check \"{}\" judges text, not tokens: expected exact, prefix or token_accuracy",
        name(check)));
  }
  if (expected.empty()) throw ValueError("expected answer: expected tokens, found none");
  const size_t common = std::min(expected.size(), produced.size());
  if (check == Check::kTokenAccuracy) {
    double right = 0;
    for (size_t i = 0; i < common; ++i) right += expected[i] == produced[i] ? 1 : 0;
    return {right / static_cast<double>(expected.size())};
  }
  const auto miss = std::mismatch(expected.begin(), expected.begin() + common, produced.begin());
  const auto reproduced = static_cast<double>(miss.first - expected.begin());
  const auto all = static_cast<double>(expected.size());
  if (check == Check::kPrefix) return {reproduced / all};
  return {reproduced == all ? 1.0 : 0.0};
}

Score score_text(Check check, std::string_view text, std::span<const std::string> accepted) {
  if (accepted.empty()) throw ValueError("accepted answers: expected at least one, found none");
  for (const std::string& answer : accepted) check_answer(check, answer);
  const auto any = [&](auto is_right) {
    return Score{std::any_of(accepted.begin(), accepted.end(), is_right) ? 1.0 : 0.0};
  };
  switch (check) {
    case Check::kExact:
      return any([&](const auto& a) { return answers::trimmed(a) == answers::trimmed(text); });
    case Check::kContains:
      return any([&](const auto& a) { return text.find(a) != std::string_view::npos; });
    case Check::kRegex:
      return score_patterns(text, accepted);
    case Check::kNumber:
      return score_numbers(text, accepted);
    case Check::kJsonEqual:
      return score_json(text, accepted);
    case Check::kShare:
      return score_share(text, accepted);
    case Check::kSimilarity:
      return score_similarity(text, accepted);
    case Check::kCommand:
      return score_commands(text, accepted);
    case Check::kPrefix:
    case Check::kTokenAccuracy:
      break;
  }
  throw ValueError(fmt::format("check \"{}\" judges tokens, not text", name(check)));
}

Score score_text(const Question& question, std::string_view text) {
  if (!question.tag.empty()) {
    text = answers::trimmed(text);
    if (!text.starts_with(question.tag)) return {0};
    text.remove_prefix(question.tag.size());
  }
  return score_text(question.check, text, question.accepted_answers);
}

void check_answer(Check check, std::string_view answer) {
  if (answers::trimmed(answer).empty()) {
    throw ValueError(fmt::format("expected an answer, found \"{}\"", answer));
  }
  if (check == Check::kNumber && !answers::parse_number(answer)) {
    throw ValueError(fmt::format("expected a number, found \"{}\"", answer));
  }
  if (check == Check::kJsonEqual && !answers::is_json(answer)) {
    throw ValueError(fmt::format("expected JSON nested at most {} deep, found \"{}\"",
                                 answers::kDeepestJson, answer));
  }
  if (check == Check::kRegex) answers::compile(answer);
}

bool is_runaway(std::span<const int32_t> generated) {
  constexpr size_t kLongestPiece = 32, kRepeats = 8, kLeastTokens = 64;
  for (size_t piece = 1; piece <= kLongestPiece; ++piece) {
    const size_t needed = std::max(kRepeats * piece, kLeastTokens);
    if (generated.size() < needed) continue;
    const auto tail = generated.last(needed);
    if (std::equal(tail.begin() + static_cast<ptrdiff_t>(piece), tail.end(), tail.begin())) {
      return true;
    }
  }
  return false;
}

std::optional<double> count_error(std::string_view text, std::string_view expected) {
  const auto number_of = [](std::string_view word) -> std::optional<double> {
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc()) return std::nullopt;
    return static_cast<double>(value);
  };
  const std::optional<double> right = number_of(expected), found = number_of(text);
  if (!right) {
    throw ValueError(fmt::format("count: expected a whole number, found \"{}\"", expected));
  }
  return found ? std::optional(std::abs(*found - *right)) : std::nullopt;
}

}  // namespace kv
