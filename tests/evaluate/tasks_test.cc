// The tasks that need more than one fact, and the one in token ids: every answer is derived again
// from the text that a model sees.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "evaluate/answers.h"
#include "evaluate/generators.h"
#include "evaluate/scorers.h"
#include "evaluate/similarity.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "tests/evaluate/tokenizers.h"

namespace kv {
namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text, const std::string& by) {
  Words out;
  size_t begin = 0;
  for (size_t at = text.find(by); at != std::string::npos; at = text.find(by, begin)) {
    out.push_back(text.substr(begin, at - begin));
    begin = at + by.size();
  }
  out.push_back(text.substr(begin));
  return out;
}

/// What stands between two marks, the first time.
std::string between(const std::string& text, const std::string& left, const std::string& right) {
  const size_t begin = text.find(left);
  if (begin == std::string::npos) return "";
  const size_t from = begin + left.size();
  return text.substr(from, text.find(right, from) - from);
}

Words magic_numbers(const Words& lines, const std::string& key) {
  Words out;
  for (const std::string& line : lines) {
    if (line.starts_with("One of the special magic numbers for " + key + " is: ")) {
      out.push_back(between(line, " is: ", "."));
    }
  }
  return out;
}

Words numbers_of_keys(const Words& lines, const std::string& question) {
  Words out;
  for (const std::string& key : split(between(question, "numbers for ", ", in this order"), ", ")) {
    const Words found = magic_numbers(lines, key);
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

Words variables(const Words& lines, const std::string& question) {
  std::map<std::string, std::string> values;
  Words out;
  const std::string wanted = between(question, "value ", ":");
  for (const std::string& line : lines) {
    if (!line.starts_with("VAR ")) continue;
    const std::string name = between(line, "VAR ", " = "), from = line.substr(line.find('=') + 2);
    EXPECT_FALSE(values.contains(name));
    values[name] = from.starts_with("VAR ") ? values.at(from.substr(4)) : from;
    if (values[name] == wanted) out.push_back(name);
  }
  return out;
}

/// The n most frequent, which must be more frequent than the next one.
Words most_frequent(const std::map<std::string, int>& counts, size_t n) {
  std::vector<std::pair<int, std::string>> order;
  for (const auto& [word, count] : counts) order.emplace_back(-count, word);
  std::sort(order.begin(), order.end());
  EXPECT_GT(order.size(), n);
  EXPECT_LT(order[n - 1].first, order[n].first);
  Words out;
  for (size_t i = 0; i < n; ++i) out.push_back(order[i].second);
  return out;
}

Words common_words(const Words& lines, int64_t target) {
  std::map<std::string, int> counts;
  auto line = std::find(lines.begin(), lines.end(), "List of words:") + 1;
  for (int number = 1; line < lines.end() && !line->empty(); ++line, ++number) {
    EXPECT_TRUE(line->starts_with(std::to_string(number) + ". ")) << *line;
    ++counts[line->substr(line->find(". ") + 2)];
  }
  std::set<int> different;
  for (const auto& [word, count] : counts) different.insert(count);
  EXPECT_EQ(different, target < 4096 ? (std::set<int>{1, 6}) : (std::set<int>{3, 30}));
  return most_frequent(counts, 10);
}

Words frequent_words(const Words& lines) {
  std::map<std::string, int> counts;
  auto line = std::find(lines.begin(), lines.end(), "Coded text:") + 1;
  for (; line < lines.end() && !line->empty(); ++line) {
    for (const std::string& word : split(*line, " ")) ++counts[word];
  }
  EXPECT_EQ(most_frequent(counts, 1), Words{"..."});
  counts.erase("...");
  return most_frequent(counts, 3);
}

Words dialogue_answer(const Words& lines, const std::string& question) {
  const std::string asked = between(question, "Repeat the ", ", after");
  int64_t number = std::stoll(asked);
  const std::string request = "User: Write a " + asked.substr(asked.find(' ') + 1) + ".";
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    if (lines[i] == request && --number == 0) return {lines[i + 1].substr(11)};
  }
  return {};
}

Words counted(const Words& lines, const std::string& question) {
  const std::string line = "One vote was given to " + between(question, "given to ", ":") + ".";
  return {std::to_string(std::count(lines.begin(), lines.end(), line))};
}

/// Works the problem out sentence by sentence.
int64_t solved(const std::string& problem) {
  int64_t value = 0, steps = -1;
  for (const std::string& sentence : split(problem.substr(problem.find(": ") + 2), ". ")) {
    const std::string digits =
        sentence.substr(std::min(sentence.find_first_of("0123456789"), sentence.size()));
    const int64_t number = digits.empty() ? 0 : std::stoll(digits);
    const auto says = [&](const char* words) { return sentence.find(words) != std::string::npos; };
    if (says("The shop has")) {
      value = number;
    } else if (says("times as many")) {
      value *= number;
    } else if (says("half of them")) {
      EXPECT_EQ(value % 2, 0);
      value /= 2;
    } else if (says("are sold")) {
      value -= number;
    } else if (says("more arrive")) {
      value += number;
    } else {
      break;
    }
    EXPECT_GT(value, 0);
    ++steps;
  }
  EXPECT_TRUE(problem.ends_with("How many boxes are there now?")) << problem;
  EXPECT_GE(steps, 3);
  EXPECT_LE(steps, 8);
  return value;
}

Words result(const Words& lines, const std::string& question) {
  const std::string name = "Problem " + between(question, "problem ", ":") + ":";
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const auto& line) { return line.starts_with(name); });
  EXPECT_NE(found, lines.end());
  return {std::to_string(solved(*found))};
}

Words derived(const Document& document, const std::string& context, const std::string& question) {
  const Words lines = split(context, "\n");
  if (document.task == "niah_multikey")
    return magic_numbers(lines, between(question, "numbers for ", " is"));
  if (document.task == "niah_multivalue")
    return magic_numbers(lines, between(question, "numbers for ", ":"));
  if (document.task == "niah_multiquery") return numbers_of_keys(lines, question);
  if (document.task == "var_track") return variables(lines, question);
  if (document.task == "common_words") return common_words(lines, document.target_tokens);
  if (document.task == "freq_words") return frequent_words(lines);
  if (document.task == "mrcr_like") return dialogue_answer(lines, question);
  if (document.task == "count") return counted(lines, question);
  return result(lines, question);
}

Words sorted(Words words) {
  std::sort(words.begin(), words.end());
  return words;
}

Words new_tasks() {
  Words out;
  for (const std::string& task : generator_tasks()) {
    const auto& old = default_tasks();
    if (std::find(old.begin(), old.end(), task) == old.end()) out.push_back(task);
  }
  return out;
}

GeneratorOptions task_options(const std::string& task, std::vector<int64_t> buckets, Form form) {
  GeneratorOptions options;
  options.task = task;
  options.form = form;
  options.buckets = std::move(buckets);
  options.documents = 2;
  options.questions_per_document = 3;
  options.master_seed = 99;
  return options;
}

/// Answers as a model might write them, and their scores.
void expect_scores(const Question& question, const Words& answer) {
  std::string text;
  for (const std::string& word : answer) text += (text.empty() ? " " : ", ") + word;
  if (question.check == Check::kRegex) text = " 1 + 1 = 2 #### " + answer[0] + ".";
  if (!question.tag.empty()) text = " " + question.tag + text;
  const Score right = score_text(question, text);
  EXPECT_DOUBLE_EQ(right.value, 1) << text;
  EXPECT_TRUE(right.valid);
  EXPECT_LT(score_text(question, " nothing of the kind: 0").value, 0.7);
  if (question.check == Check::kShare) {
    EXPECT_DOUBLE_EQ(score_text(question, answer[0]).value, 1 / static_cast<double>(answer.size()));
  }
  if (!question.tag.empty()) {
    EXPECT_EQ(score_text(question, answer[0]).value, 0) << "no tag";
  }
}

void expect_free_question(const Tokenizer& tokenizer, const Document& document,
                          const Question& question) {
  SCOPED_TRACE(question.id);
  const int64_t size = std::ssize(document.context) + std::ssize(question.tokens);
  const int64_t room = question.answer_budget;
  EXPECT_LE(size + room, document.target_tokens);
  EXPECT_GE(size + room, document.target_tokens - document.target_tokens / 100);
  std::vector<int32_t> asked = document.context;
  asked.insert(asked.end(), question.tokens.begin(), question.tokens.end());
  EXPECT_EQ(tokenizer.encode(tokenizer.decode(asked), false), asked);
  const std::string context = tokenizer.decode(document.context, true);
  const std::string text = tokenizer.decode(question.tokens);
  Words answer = derived(document, context, text);
  ASSERT_FALSE(answer.empty());
  std::string expected;
  for (const std::string& word : answer) expected += (expected.empty() ? "" : ", ") + word;
  ASSERT_FALSE(question.needles.empty());
  EXPECT_TRUE(std::is_sorted(question.needles.begin(), question.needles.end()));
  // Where a needle is said to begin a line begins.
  for (const int64_t needle : question.needles) {
    ASSERT_LT(needle, std::ssize(document.context));
    if (needle == std::ssize(tokenizer.prefix_ids())) continue;
    const std::vector<int32_t> before(document.context.begin(), document.context.begin() + needle);
    EXPECT_TRUE(tokenizer.decode(before).ends_with("\n"));
  }
  EXPECT_GT(question.chance, 0);
  EXPECT_LT(question.chance, 0.5);
  if (!question.answer_tokens.empty()) {
    EXPECT_EQ(answers::trimmed(tokenizer.decode(question.answer_tokens)), expected);
    EXPECT_EQ(room, std::ssize(question.answer_tokens));
    return;
  }
  EXPECT_DOUBLE_EQ(question.depth, static_cast<double>(question.needles[0]) /
                                       static_cast<double>(document.context.size()));
  EXPECT_TRUE(question.ends_with_line);
  EXPECT_GT(room, std::ssize(tokenizer.encode(" " + expected, false)));
  if (question.check != Check::kRegex) {
    EXPECT_EQ(sorted(question.accepted_answers), sorted(answer));
  }
  expect_scores(question, answer);
}

// The recorded vocabulary of Qwen2 is left out: it has no token for the word "left".
TEST(Tasks, EveryAnswerFollowsFromTheText) {
  for (const std::string file :
       {"models/tiny/tokenizer.json", "tests/golden/text/tokenizer-smollm.json",
        "tests/golden/text/tokenizer-llama-bpe.json"}) {
    SCOPED_TRACE(file);
    const Tokenizer tokenizer = load_tokenizer(file);
    const Form form = file.starts_with("models") ? Form::kCompact : Form::kPlain;
    for (const std::string& task : new_tasks()) {
      if (task == "induction") continue;
      const auto documents = generate(tokenizer, task_options(task, {1100, 4200}, form));
      ASSERT_EQ(documents.size(), 4u);
      for (const Document& document : documents) {
        ASSERT_EQ(std::ssize(document.questions), questions_asked(task, 3));
        for (const Question& q : document.questions) {
          expect_free_question(tokenizer, document, q);
        }
      }
    }
  }
}

TEST(Tasks, ManyLengthsComeOutRight) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string& task : new_tasks()) {
    if (task == "induction") continue;
    auto options = task_options(task, {}, Form::kPlain);
    for (int64_t target = 1200; target < 1300; target += 13) options.buckets.push_back(target);
    options.documents = 1;
    options.questions_per_document = 1;
    for (const Document& document : generate(tokenizer, options)) {
      for (const Question& q : document.questions) expect_free_question(tokenizer, document, q);
    }
  }
}

TEST(Tasks, APilotTriesThreeUnlessItIsAskedForMore) {
  EXPECT_EQ(default_tasks(), (Words{"niah_single", "kv_recall", "copy_span"}));
  EXPECT_EQ(generator_tasks().size(), 13u);
  EXPECT_EQ(new_tasks().size(), 10u);
}

TEST(Tasks, DistractorsFillTheContextOfManyKeys) {
  const Tokenizer tokenizer = tiny_tokenizer();
  auto options = task_options("niah_multikey", {900, 2000}, Form::kCompact);
  options.filler = Filler::kDistract;
  for (const Document& document : generate(tokenizer, options)) {
    const Words lines = split(tokenizer.decode(document.context), "\n");
    const auto is_needle = [](const std::string& line) {
      return line.starts_with("One of the special magic numbers for ");
    };
    const auto needles = std::count_if(lines.begin(), lines.end(), is_needle);
    EXPECT_GE(needles, std::ssize(lines) - 5) << "a line of text, and the tail";
    for (const Question& q : document.questions) expect_free_question(tokenizer, document, q);
  }
}

TEST(Tasks, FourKeysStandInTheTextWhateverIsAsked) {
  const Tokenizer tokenizer = tiny_tokenizer();
  auto options = task_options("niah_multikey", {900}, Form::kPlain);
  options.questions_per_document = 1;
  for (const Document& document : generate(tokenizer, options)) {
    EXPECT_EQ(magic_numbers(split(tokenizer.decode(document.context), "\n"), "").size(), 0u);
    EXPECT_EQ(split(tokenizer.decode(document.context), "One of the special magic numbers").size(),
              5u);
  }
}

TEST(Tasks, SecondCopiesContinueTheFirst) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const int64_t questions : {1, 3, 7}) {
    auto options = task_options("induction", {120, 257, 1000}, Form::kPlain);
    options.questions_per_document = questions;
    for (const Document& document : generate(tokenizer, options)) {
      ASSERT_EQ(std::ssize(document.questions), questions);
      for (const Question& q : document.questions) {
        const auto& context = document.context;
        const auto found =
            std::search(context.begin(), context.end(), q.tokens.begin(), q.tokens.end());
        ASSERT_NE(found, context.end());
        EXPECT_EQ(std::search(found + 1, context.end(), q.tokens.begin(), q.tokens.end()),
                  context.end());
        EXPECT_EQ(q.needles, std::vector<int64_t>{found - context.begin()});
        EXPECT_TRUE(std::equal(q.answer_tokens.begin(), q.answer_tokens.end(),
                               found + std::ssize(q.tokens)));
        EXPECT_EQ(std::ssize(context) + std::ssize(q.tokens) + std::ssize(q.answer_tokens),
                  document.target_tokens);
        EXPECT_EQ(q.check, Check::kTokenAccuracy);
        for (const int32_t id : context) EXPECT_FALSE(tokenizer.is_special(id));
        if (questions == 1) {
          EXPECT_EQ(q.needles[0], 0) << "the whole copy";
          EXPECT_LE(std::ssize(context) - std::ssize(q.tokens) - std::ssize(q.answer_tokens), 1);
        }
      }
    }
  }
}

TEST(Tasks, TokenIdsNeedNoTokenizer) {
  auto options = task_options("induction", {400}, Form::kPlain);
  options.ids = {100, 140};
  for (const Document& document : generate(options)) {
    const auto [least, most] =
        std::minmax_element(document.context.begin(), document.context.end());
    EXPECT_GE(*least, 100);
    EXPECT_LT(*most, 140);
    EXPECT_DOUBLE_EQ(document.questions[0].chance, 1.0 / 40);
  }
  options.ids = {100, 102};
  EXPECT_THROW(generate(options), UnsupportedError) << "no beginning occurs once";
  options.ids = {};
  EXPECT_THROW(generate(options), ValueError);
  options.ids = {100, 140};
  options.task = "kv_recall";
  EXPECT_THROW(generate(options), ValueError);
}

/// Every number that identifies a document, for comparison.
auto identity(const std::vector<Document>& documents) {
  std::vector<std::tuple<std::string, std::vector<int32_t>, std::vector<int32_t>, Words>> out;
  for (const Document& document : documents) {
    for (const Question& q : document.questions) {
      out.emplace_back(q.id, document.context, q.tokens, q.accepted_answers);
    }
  }
  return out;
}

TEST(Tasks, DocumentsShareNothingAndComeBack) {
  const Tokenizer tokenizer = tiny_tokenizer();
  std::set<std::string> ids;
  std::set<std::vector<int32_t>> contexts;
  std::set<uint64_t> seeds;
  size_t documents = 0;
  for (const std::string& task : new_tasks()) {
    for (const char* block : {"CAL", "E1", "E2", "E3", "AA"}) {
      auto options = task_options(task, {1200}, Form::kCompact);
      options.block = block;
      options.documents = 1;
      const auto made = generate(tokenizer, options);
      if (options.block == "E2") {
        EXPECT_EQ(identity(made), identity(generate(tokenizer, options)));
      }
      for (const Document& d : made) {
        ++documents;
        ids.insert(d.id);
        seeds.insert(d.seed);
        contexts.insert(d.context);
      }
    }
  }
  EXPECT_EQ(documents, new_tasks().size() * 5);
  EXPECT_EQ(ids.size(), documents);
  EXPECT_EQ(seeds.size(), documents);
  EXPECT_EQ(contexts.size(), documents);
}

TEST(Tasks, FirstNeedlesCoverTheContextEvenly) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string& task : new_tasks()) {
    if (questions_asked(task, 4) == 1) continue;
    auto options = task_options(task, {2400}, Form::kCompact);
    options.documents = 6, options.questions_per_document = 4;
    std::vector<double> depths;
    for (const Document& d : generate(tokenizer, options)) {
      for (const Question& q : d.questions) depths.push_back(q.depth);
    }
    std::sort(depths.begin(), depths.end());
    ASSERT_EQ(depths.size(), 24u);
    // A copy of induction is as long as a quarter of the sequence and ends inside it; other lines
    // that must stand somewhere push the depths about.
    const double last = task == "induction" ? 0.75 : 1;
    for (size_t i = 0; i < depths.size(); ++i) {
      EXPECT_NEAR(depths[i], last * (static_cast<double>(i) + 0.5) / 24, 0.12) << task << " " << i;
    }
  }
}

// A change of the texts is a change of the data set: it needs another kGeneratorVersion.
TEST(Tasks, TextsOfThisVersionAreKnown) {
  ASSERT_EQ(kGeneratorVersion, 2);
  const Tokenizer tokenizer = tiny_tokenizer();
  std::map<std::string, uint64_t> hashes;
  for (const std::string& task : new_tasks()) {
    uint64_t hash = 0;
    for (const Form form : {Form::kPlain, Form::kCompact}) {
      for (const Document& d : generate(tokenizer, task_options(task, {1300}, form))) {
        for (const int32_t id : d.context) hash = mix(hash ^ static_cast<uint64_t>(id));
        for (const Question& q : d.questions) {
          for (const int32_t id : q.tokens) hash = mix(hash ^ static_cast<uint64_t>(id));
          for (const std::string& a : q.accepted_answers) hash = mix(hash ^ fnv1a64(a));
        }
      }
    }
    hashes[task] = hash;
  }
  const std::map<std::string, uint64_t> expected = {
      {"arith_chain", 2008830565572823380u},      {"common_words", 5745933411375573687u},
      {"count", 14126904551648938171u},           {"freq_words", 13333751083075892866u},
      {"induction", 2823829311038023533u},        {"mrcr_like", 12291825460493355874u},
      {"niah_multikey", 13199266766106224291u},   {"niah_multiquery", 89809962473613320u},
      {"niah_multivalue", 12320186501418964159u}, {"var_track", 16996153004893601723u}};
  EXPECT_EQ(hashes, expected);
}

// What GeneratorOptions and the tasks state as chance.
TEST(Tasks, GuessesAreWorthWhatIsStated) {
  const Tokenizer tokenizer = tiny_tokenizer();
  auto options = task_options("arith_chain", {1400}, Form::kCompact);
  options.documents = 50, options.questions_per_document = 6;
  std::map<std::string, int> results;
  double chance = 0, n = 0;
  for (const Document& d : generate(tokenizer, options)) {
    for (const Question& q : d.questions) ++results[q.accepted_answers[0]], ++n, chance = q.chance;
  }
  int most = 0;
  for (const auto& [text, count] : results) most = std::max(most, count);
  EXPECT_LT(most / n, chance + 3 * std::sqrt(chance / n));
  options = task_options("mrcr_like", {1400}, Form::kCompact);
  options.documents = 15;
  Words answers;
  for (const Document& d : generate(tokenizer, options)) {
    for (const Question& q : d.questions) {
      answers.push_back(q.accepted_answers[0]);
      chance = q.chance;
    }
  }
  double sum = 0;
  n = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (size_t j = i + 1; j < answers.size(); j += 3, ++n)
      sum += similarity(answers[i], answers[j]);
  }
  EXPECT_NEAR(sum / n, chance, 0.02) << n;
}

}  // namespace
}  // namespace kv
