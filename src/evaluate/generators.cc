#include "evaluate/generators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "evaluate/facts.h"
#include "evaluate/filler.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

constexpr std::array<std::string_view, 5> kBlocks = {"CAL", "E1", "E2", "E3", "AA"};
// Limits of document_seed: block, target and index stand in bits of their own.
constexpr int64_t kTargetLimit = int64_t{1} << 28, kIndexLimit = int64_t{1} << 20;

/// Where the text is cut into context, question and answer. Which one is right depends on how a
/// tokenizer treats newlines and spaces.
struct Cut {
  bool newline_in_question = false;
  bool space_in_question = false;
};

/// A fact with its costs in tokens, as a line of the context and asked for.
struct PricedFact {
  Fact fact;
  int64_t line_cost = 0;
  int64_t asking_cost = 0;  // question and answer
};

/// The text of a context before its tail, and what is asked about it.
struct Draft {
  std::string body;
  std::vector<PricedFact> asked;
};

void append(std::vector<int32_t>& ids, std::span<const int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

class Generator {
 public:
  Generator(const Tokenizer& tokenizer, const GeneratorOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        filler_(tokenizer, options.filler),
        is_recall_(options.task == "kv_recall"),
        tail_(is_recall_ ? "\nFrom the list above:\n" : "\nFrom the text above:\n"),
        cut_(find_cut()) {}

  Document document(int64_t target, int64_t index) const;

 private:
  // How the three texts are cut.
  std::string context_text(const std::string& body) const {
    return body + (cut_.newline_in_question ? tail_.substr(0, tail_.size() - 1) : tail_);
  }
  std::string question_text(const Fact& fact) const {
    return (cut_.newline_in_question ? "\n" : "") + fact.question +
           (cut_.space_in_question ? " " : "");
  }
  std::string answer_text(const Fact& fact) const {
    return fact.answer.substr(cut_.space_in_question ? 1 : 0);
  }
  Cut find_cut();
  bool is_cut_right(const std::string& context, const Fact& fact) const;

  std::vector<int32_t> encode(const std::string& text) const {
    return tokenizer_.encode(text, false);
  }
  PricedFact price(Fact fact) const;

  // Drafts of about this many tokens, asking included.
  Draft draft(int64_t target, int64_t index, int64_t tokens) const;
  Draft draft_list(int64_t target, int64_t index, int64_t tokens) const;
  Draft draft_text(int64_t target, int64_t index, int64_t tokens) const;
  std::vector<PricedFact> facts_of_like_cost(FactMaker& maker, int64_t target) const;
  std::vector<PricedFact> choose_lines(const std::vector<PricedFact>& lines,
                                       const std::vector<double>& depths, int64_t target) const;
  std::vector<double> depths(int64_t target, int64_t index) const;

  Document finished(const Draft& draft, std::vector<int32_t> context, int64_t target,
                    int64_t index) const;
  Question question(const Fact& fact, const Document& document) const;

  /// Half the length that the questions of a document may differ by.
  static int64_t half_spread(int64_t target) { return target / 100 / 2; }
  [[noreturn]] void give_up(int64_t target, std::string_view what) const {
    throw UnsupportedError(fmt::format("generator {}: {} tokens, {} questions a document: {}",
                                       options_.task, target, options_.questions_per_document,
                                       what));
  }

  const Tokenizer& tokenizer_;
  const GeneratorOptions& options_;
  FillerMaker filler_;
  bool is_recall_;
  std::string tail_;
  Cut cut_;
};

bool Generator::is_cut_right(const std::string& context, const Fact& fact) const {
  const std::string question = question_text(fact), answer = answer_text(fact);
  std::vector<int32_t> parts = encode(context);
  append(parts, encode(question));
  append(parts, encode(answer));
  return parts == encode(context + question + answer);
}

/// The first cut that gives the same tokens on sample facts; finished() holds every question to it.
Cut Generator::find_cut() {
  for (const bool space : {false, true}) {
    for (const bool newline : {false, true}) {
      cut_ = {newline, space};
      FactMaker maker(options_.task, options_.form, 0);
      bool is_right = true;
      for (int i = 0; i < 8; ++i) {
        const Fact fact = maker.next();
        is_right = is_right && is_cut_right(context_text(fact.line()), fact);
      }
      if (is_right) return cut_;
    }
  }
  throw UnsupportedError(fmt::format(
      "generator {}: this tokenizer joins tokens across context, question and answer wherever they "
      "are cut",
      options_.task));
}

PricedFact Generator::price(Fact fact) const {
  PricedFact out;
  out.line_cost = filler_.cost(fact.line());
  out.asking_cost = filler_.cost(question_text(fact)) + filler_.cost(answer_text(fact));
  out.fact = std::move(fact);
  return out;
}

/// The strata of a bucket are dealt to its documents in turn, so that each document's questions lie
/// all over its context.
std::vector<double> Generator::depths(int64_t target, int64_t index) const {
  SplitMix64 random(mix(document_seed(options_, target, index) + 3));
  const int64_t strata = options_.documents * options_.questions_per_document;
  std::vector<double> out;
  for (int64_t stratum = index; stratum < strata; stratum += options_.documents) {
    out.push_back((static_cast<double>(stratum) + random.uniform()) / static_cast<double>(strata));
  }
  return out;
}

Draft Generator::draft(int64_t target, int64_t index, int64_t tokens) const {
  return is_recall_ ? draft_list(target, index, tokens) : draft_text(target, index, tokens);
}

std::vector<PricedFact> Generator::facts_of_like_cost(FactMaker& maker, int64_t target) const {
  constexpr int kAttempts = 3000;
  std::vector<PricedFact> out;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    PricedFact drawn = price(maker.next());
    if (!out.empty() &&
        std::abs(drawn.asking_cost - out.front().asking_cost) > half_spread(target)) {
      continue;
    }
    out.push_back(std::move(drawn));
    if (static_cast<int64_t>(out.size()) == options_.questions_per_document) return out;
  }
  give_up(target, "too few keys of equal length in tokens");
}

/// Facts on lines of their own among running text.
Draft Generator::draft_text(int64_t target, int64_t index, int64_t tokens) const {
  const uint64_t seed = document_seed(options_, target, index);
  FactMaker maker(options_.task, options_.form, mix(seed + 1));
  SplitMix64 random(mix(seed + 2));
  Draft out;
  out.asked = facts_of_like_cost(maker, target);
  int64_t asking = 0, room = tokens;
  for (const PricedFact& fact : out.asked) {
    asking = std::max(asking, fact.asking_cost);
    room -= fact.line_cost;
  }
  room -= asking;
  if (room < FillerMaker::kLeastTokens) give_up(target, "the facts leave no room for other text");

  const std::vector<double> places = depths(target, index);  // ascending
  int64_t written = 0;
  size_t next = 0;
  for (const Line& line : filler_.lines(room, random)) {
    for (; next < places.size() && places[next] * static_cast<double>(room) <=
                                       static_cast<double>(written + line.tokens / 2);
         ++next) {
      out.body += out.asked[next].fact.line();
    }
    out.body += line.text;
    written += line.tokens;
  }
  for (; next < places.size(); ++next) out.body += out.asked[next].fact.line();
  return out;
}

/// The lines to ask for: at each depth the nearest one whose question costs what most cost.
std::vector<PricedFact> Generator::choose_lines(const std::vector<PricedFact>& lines,
                                                const std::vector<double>& depths,
                                                int64_t target) const {
  std::map<int64_t, int64_t> count;
  for (const PricedFact& line : lines) ++count[line.asking_cost];
  const int64_t usual =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  std::vector<bool> is_taken(lines.size());
  const auto is_usable = [&](int64_t i) {
    return i >= 0 && i < static_cast<int64_t>(lines.size()) && !is_taken[static_cast<size_t>(i)] &&
           std::abs(lines[static_cast<size_t>(i)].asking_cost - usual) <= half_spread(target);
  };
  std::vector<PricedFact> out;
  for (const double depth : depths) {
    const auto wanted = static_cast<int64_t>(depth * static_cast<double>(lines.size()));
    int64_t distance = 0;
    while (!is_usable(wanted - distance) && !is_usable(wanted + distance)) {
      if (++distance > static_cast<int64_t>(lines.size())) give_up(target, "too few lines");
    }
    const int64_t found = is_usable(wanted + distance) ? wanted + distance : wanted - distance;
    is_taken[static_cast<size_t>(found)] = true;
    out.push_back(lines[static_cast<size_t>(found)]);
  }
  return out;
}

/// Lines of keys and values; what is left of the length is running text before them.
Draft Generator::draft_list(int64_t target, int64_t index, int64_t tokens) const {
  const uint64_t seed = document_seed(options_, target, index);
  FactMaker maker(options_.task, options_.form, mix(seed + 1));
  SplitMix64 random(mix(seed + 2));
  const std::string heading = "List of keys and their values:\n";
  std::vector<PricedFact> lines = {price(maker.next())};
  int64_t room = tokens - filler_.cost(heading) - lines[0].asking_cost - lines[0].line_cost;
  while (room > 0) {
    lines.push_back(price(maker.next()));
    room -= lines.back().line_cost;
  }
  while (room != 0 && room < FillerMaker::kLeastTokens && !lines.empty()) {
    room += lines.back().line_cost;
    lines.pop_back();
  }
  if (static_cast<int64_t>(lines.size()) < options_.questions_per_document) {
    give_up(target, "fewer lines fit than are asked for");
  }
  Draft out;
  for (const Line& line : filler_.lines(room, random)) out.body += line.text;
  out.body += heading;
  for (const PricedFact& line : lines) out.body += line.fact.line();
  out.asked = choose_lines(lines, depths(target, index), target);
  return out;
}

Document Generator::document(int64_t target, int64_t index) const {
  const auto prefix = tokenizer_.prefix_ids();
  const int64_t shortest = target - target / 100;
  // Costs of lines add up, but a line and the tail may share a token; one correction mends that.
  constexpr int kAttempts = 8;
  int64_t tokens = target - filler_.cost(tail_) - static_cast<int64_t>(prefix.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Draft drafted = draft(target, index, tokens);
    std::vector<int32_t> context(prefix.begin(), prefix.end());
    append(context, encode(context_text(drafted.body)));
    const auto [least, most] = std::minmax_element(
        drafted.asked.begin(), drafted.asked.end(),
        [](const auto& a, const auto& b) { return a.asking_cost < b.asking_cost; });
    const auto size = static_cast<int64_t>(context.size());
    if (size + most->asking_cost <= target && size + least->asking_cost >= shortest) {
      return finished(drafted, std::move(context), target, index);
    }
    tokens -= size + most->asking_cost - target;
  }
  give_up(target, "no context of this length was found");
}

Question Generator::question(const Fact& fact, const Document& document) const {
  Question out;
  out.tokens = encode(question_text(fact));
  out.answer_tokens = encode(answer_text(fact));
  out.check = options_.task == "copy_span" ? Check::kPrefix : Check::kExact;
  const std::vector<int32_t>& context = document.context;
  const auto find = [&](auto from) {
    return std::search(from, context.end(), out.answer_tokens.begin(), out.answer_tokens.end());
  };
  const auto found = find(context.begin());
  if (found == context.end() || find(found + 1) != context.end()) {
    give_up(document.target_tokens, fmt::format("the tokens of the answer \"{}\" do not stand "
                                                "exactly once in the context",
                                                fact.answer));
  }
  out.depth = static_cast<double>(found - context.begin()) / static_cast<double>(context.size());
  return out;
}

Document Generator::finished(const Draft& draft, std::vector<int32_t> context, int64_t target,
                             int64_t index) const {
  Document out;
  out.bucket = fmt::format("{}", target);
  out.id = fmt::format("{}-{}-{}-{}", options_.task, options_.block, out.bucket, index);
  out.task = options_.task;
  out.target_tokens = target;
  out.seed = document_seed(options_, target, index);
  out.context = std::move(context);
  const std::string text = context_text(draft.body);
  const double chance = FactMaker(options_.task, options_.form, 0).chance();
  for (const PricedFact& priced : draft.asked) {
    if (!is_cut_right(text, priced.fact)) {
      give_up(target, fmt::format("tokens join across the cuts of \"{}\"", priced.fact.line()));
    }
    Question asked = question(priced.fact, out);
    asked.id = fmt::format("{}-q{}", out.id, out.questions.size());
    asked.chance = chance;
    out.questions.push_back(std::move(asked));
  }
  return out;
}

void check_range(std::string_view name, int64_t value, int64_t least, int64_t limit) {
  if (value >= least && value < limit) return;
  throw ValueError(fmt::format("generator: {}: expected a number in [{}, {}), found {}", name,
                               least, limit, value));
}

void check_options(const GeneratorOptions& options) {
  const auto& tasks = generator_tasks();
  if (std::find(tasks.begin(), tasks.end(), options.task) == tasks.end()) {
    throw ValueError(fmt::format("generator: task: expected {}, found \"{}\"",
                                 fmt::join(tasks, ", "), options.task));
  }
  check_range("documents", options.documents, 1, kIndexLimit);
  check_range("questions_per_document", options.questions_per_document, 1, 1000);
  if (options.buckets.empty()) throw ValueError("generator: buckets: expected some, found none");
  for (size_t i = 0; i < options.buckets.size(); ++i) {
    check_range("bucket", options.buckets[i], 1, kTargetLimit);
    if (std::count(options.buckets.begin(), options.buckets.end(), options.buckets[i]) > 1) {
      throw ValueError(fmt::format("generator: bucket {} occurs twice", options.buckets[i]));
    }
  }
}

}  // namespace

const std::vector<std::string>& generator_tasks() {
  static const std::vector<std::string> tasks = {"niah_single", "kv_recall", "copy_span"};
  return tasks;
}

uint64_t document_seed(const GeneratorOptions& options, int64_t target_tokens, int64_t index) {
  const auto block = std::find(kBlocks.begin(), kBlocks.end(), options.block);
  if (block == kBlocks.end()) {
    throw ValueError(fmt::format("generator: block: expected {}, found \"{}\"",
                                 fmt::join(kBlocks, ", "), options.block));
  }
  check_range("bucket", target_tokens, 1, kTargetLimit);
  check_range("document", index, 0, kIndexLimit);
  const auto block_number = static_cast<uint64_t>(block - kBlocks.begin());
  const uint64_t number = block_number << 48 | static_cast<uint64_t>(target_tokens) << 20 |
                          static_cast<uint64_t>(index);
  return mix(mix(options.master_seed ^ fnv1a64(options.task)) + number);
}

std::vector<Document> generate(const Tokenizer& tokenizer, const GeneratorOptions& options) {
  check_options(options);
  const Generator generator(tokenizer, options);
  std::vector<Document> out;
  for (const int64_t target : options.buckets) {
    for (int64_t index = 0; index < options.documents; ++index) {
      out.push_back(generator.document(target, index));
    }
  }
  return out;
}

}  // namespace kv
