#include "evaluate/generators.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "evaluate/word_lists.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "tests/evaluate/tokenizers.h"

namespace kv {
namespace {

GeneratorOptions options_for(const std::string& task, std::vector<int64_t> buckets,
                             Form form = Form::kPlain) {
  GeneratorOptions options;
  options.task = task;
  options.form = form;
  options.buckets = std::move(buckets);
  options.documents = 3;
  options.questions_per_document = 3;
  options.master_seed = 99;
  return options;
}

/// Every number that identifies a document, for comparison.
auto fingerprint(const std::vector<Document>& documents) {
  std::vector<std::tuple<std::string, std::vector<int32_t>, std::vector<int32_t>, std::string>> out;
  for (const Document& document : documents) {
    for (const Question& q : document.questions) {
      std::vector<int32_t> asked = q.tokens;
      asked.insert(asked.end(), q.answer_tokens.begin(), q.answer_tokens.end());
      out.emplace_back(document.id, document.context, asked, q.id);
    }
  }
  return out;
}

std::vector<size_t> positions(const std::vector<int32_t>& text, const std::vector<int32_t>& part) {
  std::vector<size_t> out;
  for (size_t i = 0; i + part.size() <= text.size(); ++i) {
    if (std::equal(part.begin(), part.end(), text.begin() + static_cast<ptrdiff_t>(i))) {
      out.push_back(i);
    }
  }
  return out;
}

std::vector<int32_t> joined(const Document& document, const Question& question) {
  std::vector<int32_t> out = document.context;
  out.insert(out.end(), question.tokens.begin(), question.tokens.end());
  out.insert(out.end(), question.answer_tokens.begin(), question.answer_tokens.end());
  return out;
}

/// What the contract of generate() promises of one question.
void expect_promises(const Tokenizer& tokenizer, const Document& document,
                     const Question& question) {
  SCOPED_TRACE(question.id);
  const std::vector<int32_t> all = joined(document, question);
  const auto size = static_cast<double>(all.size());
  EXPECT_EQ(question.answer_budget, std::ssize(question.answer_tokens));
  EXPECT_LE(size, static_cast<double>(document.target_tokens));
  EXPECT_GE(size, 0.99 * static_cast<double>(document.target_tokens));
  // The text of all parts, encoded as one.
  EXPECT_EQ(tokenizer.encode(tokenizer.decode(all), false), all);
  ASSERT_FALSE(question.answer_tokens.empty());
  const auto found = positions(document.context, question.answer_tokens);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_DOUBLE_EQ(question.depth,
                   static_cast<double>(found[0]) / static_cast<double>(document.context.size()));
  ASSERT_EQ(question.needles.size(), 1u);
  EXPECT_LT(question.needles[0], static_cast<int64_t>(found[0]));
  // The answer follows the very words of the question in the context, nowhere else.
  const std::string context = tokenizer.decode(document.context);
  std::string sentence = tokenizer.decode(question.tokens);
  EXPECT_EQ(context.find(sentence), context.rfind(sentence));
  sentence += tokenizer.decode(question.answer_tokens);
  EXPECT_NE(context.find(sentence), std::string::npos) << sentence;
}

TEST(Generators, KeepTheirPromisesOnEveryPreTokenizer) {
  for (const std::string& file : tokenizer_files()) {
    SCOPED_TRACE(file);
    const Tokenizer tokenizer = load_tokenizer(file);
    const bool is_tiny = file.starts_with("models");
    for (const std::string& task : default_tasks()) {
      for (const Filler filler : {Filler::kProse, Filler::kRepeat}) {
        auto options = options_for(task, {640, 1500}, is_tiny ? Form::kCompact : Form::kPlain);
        options.filler = filler;
        const auto documents = generate(tokenizer, options);
        ASSERT_EQ(documents.size(), 6u);
        for (const Document& document : documents) {
          ASSERT_EQ(document.questions.size(), 3u);
          for (const Question& q : document.questions) expect_promises(tokenizer, document, q);
        }
      }
    }
  }
}

TEST(Generators, ManyLengthsComeOutRight) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string& task : default_tasks()) {
    auto options = options_for(task, {}, Form::kCompact);
    for (int64_t target = 200; target < 320; target += 7) options.buckets.push_back(target);
    options.documents = 1;
    for (const Document& document : generate(tokenizer, options)) {
      for (const Question& q : document.questions) expect_promises(tokenizer, document, q);
    }
  }
}

TEST(Generators, ATargetBelowAHundredLeavesNoSlackAndIsMet) {
  const Tokenizer tokenizer = tiny_tokenizer();
  auto options = options_for("kv_recall", {96, 100, 199}, Form::kCompact);
  options.questions_per_document = 2;
  for (const Document& document : generate(tokenizer, options)) {
    for (const Question& q : document.questions) {
      expect_promises(tokenizer, document, q);
      if (document.target_tokens < 100) {
        EXPECT_EQ(joined(document, q).size(), 96u);
      }
    }
  }
}

TEST(Generators, CompactFormsAreThoseOfTheBuiltInModel) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string& task : default_tasks()) {
    for (const Document& d : generate(tokenizer, options_for(task, {512}, Form::kCompact))) {
      const std::string context = tokenizer.decode(d.context);
      for (const Question& q : d.questions) {
        if (task == "kv_recall") {
          EXPECT_NE(context.find("List of keys and their values:\n"), std::string::npos);
          EXPECT_TRUE(context.ends_with("\n\nFrom the list above:\n"));
          EXPECT_EQ(q.tokens.size(), 4u) << "a key of 3 tokens and a colon";
          EXPECT_EQ(q.answer_tokens.size(), 4u);
        } else {
          EXPECT_TRUE(context.ends_with(".\n\nFrom the text above:\n") ||
                      context.ends_with("\n\nFrom the text above:\n"));
          const std::string text = tokenizer.decode(q.tokens);
          EXPECT_TRUE(text.starts_with(
              task == "copy_span" ? "Passage " : "One of the special magic numbers for "))
              << text;
          EXPECT_EQ(q.answer_tokens.size(), task == "copy_span" ? 16u : 8u);
        }
        EXPECT_EQ(q.check, task == "copy_span" ? Check::kPrefix : Check::kExact);
        EXPECT_GT(q.chance, 0);
        EXPECT_LT(q.chance, 0.001);
      }
    }
  }
}

TEST(Generators, TheSameOptionsGiveTheSameDocuments) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string& task : default_tasks()) {
    const auto options = options_for(task, {400}, Form::kCompact);
    EXPECT_EQ(fingerprint(generate(tokenizer, options)), fingerprint(generate(tokenizer, options)));
  }
}

// A change of the texts is a change of the data set: it needs another kGeneratorVersion.
TEST(Generators, TextsOfThisVersionAreKnown) {
  ASSERT_EQ(kGeneratorVersion, 2);
  const Tokenizer tokenizer = tiny_tokenizer();
  uint64_t hash = 0;
  for (const std::string& task : default_tasks()) {
    for (const Form form : {Form::kPlain, Form::kCompact}) {
      for (const Document& d : generate(tokenizer, options_for(task, {700}, form))) {
        hash = mix(hash ^ fnv1a64(tokenizer.decode(d.context)));
        for (const Question& q : d.questions) {
          hash = mix(hash ^ fnv1a64(tokenizer.decode(joined(d, q))));
        }
      }
    }
  }
  EXPECT_EQ(hash, 16601184683917531201u);
}

TEST(Generators, DocumentsShareNothing) {
  const Tokenizer tokenizer = tiny_tokenizer();
  std::set<std::string> ids, contexts, questions;
  std::set<uint64_t> seeds;
  size_t documents = 0;
  for (const std::string& task : default_tasks()) {
    for (const char* block : {"CAL", "E1", "E2", "E3", "AA"}) {
      auto options = options_for(task, {300, 301}, Form::kCompact);
      options.block = block;
      for (const Document& d : generate(tokenizer, options)) {
        ++documents;
        ids.insert(d.id);
        seeds.insert(d.seed);
        contexts.insert(tokenizer.decode(d.context));
        for (const Question& q : d.questions) questions.insert(tokenizer.decode(joined(d, q)));
      }
    }
  }
  EXPECT_EQ(documents, 90u);
  EXPECT_EQ(ids.size(), documents);
  EXPECT_EQ(seeds.size(), documents);
  EXPECT_EQ(contexts.size(), documents);
  EXPECT_EQ(questions.size(), documents * 3);
}

TEST(Generators, MoreDocumentsOnlyMoveTheDepths) {
  // Seeds do not depend on how many documents there are.
  auto options = options_for("kv_recall", {300}, Form::kCompact);
  const uint64_t seed = document_seed(options, 300, 1);
  options.documents = 50;
  EXPECT_EQ(document_seed(options, 300, 1), seed);
}

TEST(Generators, DepthsCoverTheContextEvenly) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string& task : default_tasks()) {
    auto options = options_for(task, {1024}, Form::kCompact);
    options.documents = 10, options.questions_per_document = 4;
    std::vector<double> depths;
    for (const Document& d : generate(tokenizer, options)) {
      for (const Question& q : d.questions) depths.push_back(q.depth);
    }
    std::sort(depths.begin(), depths.end());
    ASSERT_EQ(depths.size(), 40u);
    // One question in each fortieth of the context; lines are up to a twentieth of it apart, and
    // heading and tail take their share.
    for (size_t i = 0; i < depths.size(); ++i) {
      EXPECT_NEAR(depths[i], (static_cast<double>(i) + 0.5) / 40, 0.08) << task;
    }
  }
}

TEST(Generators, BosIsCountedAndStandsFirst) {
  const std::string path = std::string(KV_SOURCE_DIR) + "/models/tiny/tokenizer.json";
  std::ifstream file(path);
  std::string json{std::istreambuf_iterator<char>(file), {}};
  const std::string none = "\"post_processor\": null";
  const size_t at = json.find(none);
  ASSERT_NE(at, std::string::npos);
  json.replace(at, none.size(),
               R"("post_processor": {"type": "TemplateProcessing", "single": [
                  {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}}], "pair": [
                  {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                  "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0],
                  "tokens": ["<|endoftext|>"]}}})");
  const Tokenizer tokenizer = Tokenizer::from_tokenizer_json(json, "with BOS");
  ASSERT_EQ(tokenizer.prefix_ids().size(), 1u);
  for (const Document& d : generate(tokenizer, options_for("niah_single", {400}, Form::kCompact))) {
    EXPECT_EQ(d.context[0], tokenizer.prefix_ids()[0]);
    EXPECT_EQ(std::count(d.context.begin(), d.context.end(), d.context[0]), 1);
    EXPECT_LE(joined(d, d.questions[0]).size(), 400u);
    EXPECT_GE(joined(d, d.questions[0]).size(), 396u);
  }
}

TEST(Generators, SeedsFollowTheMethod) {
  EXPECT_EQ(fnv1a64("niah_single"), 0x713d17efbe5e200au);
  GeneratorOptions options;
  options.task = "niah_single", options.block = "CAL", options.master_seed = 5;
  EXPECT_EQ(document_seed(options, 1024, 3),
            mix(mix(5 ^ 0x713d17efbe5e200au) + (uint64_t{1024} << 20 | 3)));
}

TEST(Generators, ImpossibleOptionsAreRefused) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto expect_refused = [&](auto change) {
    auto options = options_for("kv_recall", {256}, Form::kCompact);
    change(options);
    EXPECT_THROW(generate(tokenizer, options), ValueError);
  };
  expect_refused([](auto& o) { o.task = "niah"; });
  expect_refused([](auto& o) { o.block = "E4"; });
  expect_refused([](auto& o) { o.buckets = {}; });
  expect_refused([](auto& o) { o.buckets = {256, 256}; });
  expect_refused([](auto& o) { o.buckets = {0}; });
  expect_refused([](auto& o) { o.buckets = {int64_t{1} << 30}; });
  expect_refused([](auto& o) { o.documents = 0; });
  expect_refused([](auto& o) { o.questions_per_document = 0; });
  expect_refused([](auto& o) { o.filler = Filler::kDistract; });
  for (const std::string& task : generator_tasks()) {
    EXPECT_THROW(generate(tokenizer, options_for(task, {24}, Form::kCompact)), UnsupportedError);
  }
}

TEST(WordLists, AreDistinctAndPlain) {
  std::set<std::string_view> nouns(word_lists::nouns().begin(), word_lists::nouns().end());
  std::set<std::string_view> adjectives(word_lists::adjectives().begin(),
                                        word_lists::adjectives().end());
  EXPECT_EQ(nouns.size(), word_lists::nouns().size());
  EXPECT_EQ(adjectives.size(), word_lists::adjectives().size());
  for (const auto& list : {nouns, adjectives}) {
    for (const std::string_view word : list) {
      EXPECT_TRUE(std::all_of(word.begin(), word.end(), [](char c) {
        return c >= 'a' && c <= 'z';
      })) << word;
    }
  }
}

}  // namespace
}  // namespace kv
