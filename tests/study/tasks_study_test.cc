// Answers that are written freely, and scores that are shares, from the document to the verdict.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "decide/decide.h"
#include "evaluate/example_lines.h"
#include "evaluate/generators.h"
#include "kvscale/error.h"
#include "study/decide_study.h"
#include "tests/study/plants.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

Document counting_document() {
  GeneratorOptions options;
  options.task = "count";
  options.form = Form::kCompact;
  options.buckets = {320};
  options.documents = 1;
  options.questions_per_document = 2;
  return generate(tiny().tokenizer, options).front();
}

/// What the control answers, question by question.
std::vector<Attempt> answers_of(const Document& document, std::vector<int32_t> line_ends,
                                int64_t max_new_tokens = 20) {
  EngineRunner runner(tiny().model, {}, {}, std::move(line_ends), max_new_tokens);
  RunnerArm control;
  control.name = "bf16";
  const auto answers = runner.answer(document, {&control, 1});
  std::vector<Attempt> out;
  for (const Answer& answer : answers.front()) {
    EXPECT_EQ(answer.attempts.size(), 1u);
    out.push_back(answer.attempts.front());
  }
  return out;
}

TEST(FreeAnswers, EndWithTheirLineOrTheirBudget) {
  Document document = counting_document();
  Question users = document.questions[0];  // like a prompt of the user's: no budget, no line
  users.id = "user";
  users.answer_budget = 0;
  users.ends_with_line = false;
  document.questions[1].answer_budget = 3;
  document.questions.push_back(users);
  const int64_t budget = document.questions[0].answer_budget;
  ASSERT_GT(budget, 3);
  ASSERT_LT(budget, 20);

  const auto endless = answers_of(document, {});
  EXPECT_EQ(std::ssize(endless[0].produced), budget);
  EXPECT_EQ(endless[1].produced.size(), 3u);
  EXPECT_EQ(endless[2].produced.size(), 20u);
  for (const Attempt& answer : endless) {
    EXPECT_FALSE(answer.ended);
    EXPECT_TRUE(answer.finite);
  }
  // The same question, whatever it may take.
  EXPECT_TRUE(std::equal(endless[0].produced.begin(), endless[0].produced.end(),
                         endless[2].produced.begin()));

  std::vector<int32_t> all(static_cast<size_t>(tiny().tokenizer.vocab_size()));
  std::iota(all.begin(), all.end(), 0);
  const auto silent = answers_of(document, all);
  EXPECT_TRUE(silent[0].produced.empty() && silent[0].ended);
  EXPECT_TRUE(silent[1].produced.empty() && silent[1].ended);
  EXPECT_EQ(silent[2].produced, endless[2].produced) << "lines do not end it";

  const std::vector<int32_t> stop = {endless[0].produced[1]};
  const auto stopped = answers_of(document, stop);
  EXPECT_TRUE(stopped[0].ended);
  EXPECT_EQ(stopped[0].produced.size(), endless[0].produced[0] == endless[0].produced[1] ? 0u : 1u);
}

TEST(FreeAnswers, LineEndsAreTheTokensWithANewline) {
  const Tokenizer& tokenizer = tiny().tokenizer;
  const std::vector<int32_t> ends = line_end_ids(tokenizer);
  EXPECT_FALSE(ends.empty());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool has_newline = tokenizer.decode({&id, 1}).find('\n') != std::string::npos;
    EXPECT_EQ(std::ranges::find(ends, id) != ends.end(), has_newline) << id;
  }
}

struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / ("kvscale-tasks-" + std::to_string(::getpid()));
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() { fs::remove_all(path); }
};

StudyOptions options_with(std::vector<std::string> tasks) {
  StudyOptions options;
  options.decide = DecideOptions::quick();
  options.decide.documents = 8;
  options.decide.aa_documents = 8;
  options.decide.questions_per_document = 3;
  options.decide.looks = {1};
  options.buckets = {768};
  options.tasks = std::move(tasks);
  options.form = Form::kCompact;
  return options;
}

TEST(PartialScores, GoFromTheDocumentToTheVerdict) {
  const TemporaryFolder folder;
  RecordLog log(folder.path / "records.jsonl");
  NoProgress silent;
  DecideStudy study(tiny().model, tiny().tokenizer, {}, named_source(),
                    options_with({"kv_recall", "induction"}), folder.path, log, silent);
  const Verdict verdict = study.run();
  ASSERT_FALSE(verdict.tables.empty()) << verdict.sentence;
  const ArmTable& table = verdict.tables.front();
  EXPECT_EQ(table.buckets[0].n, 24);
  EXPECT_FALSE(table.buckets[0].is_binary);
  EXPECT_TRUE(std::isfinite(table.overall.interval.lo) && std::isfinite(table.overall.interval.hi));
  EXPECT_LT(table.overall.interval.lo, table.overall.interval.hi);
  size_t partial = 0;
  for (const ExampleRecord& record : log.examples()) {
    EXPECT_GE(record.score, 0);
    EXPECT_LE(record.score, 1);
    partial += record.score > 0 && record.score < 1 ? 1 : 0;
  }
  EXPECT_GT(partial, 8u);
}

// How far a count is off is said beside whether it is right, even where the model cannot count.
TEST(PartialScores, ACountSaysByHowMuchItIsOff) {
  const TemporaryFolder folder;
  RecordLog log(folder.path / "records.jsonl");
  NoProgress silent;
  StudyOptions options = options_with({"count"});
  options.decide.documents = options.decide.aa_documents = 4;
  DecideStudy study(tiny().model, tiny().tokenizer, {}, named_source(), options, folder.path, log,
                    silent);
  const Verdict verdict = study.run();
  for (const CountErrorRecord& record : log.records().count_errors) {
    const auto example = std::ranges::find(
        log.examples(), record.record_id.substr(std::strlen("count/")), &ExampleRecord::record_id);
    ASSERT_NE(example, log.examples().end()) << record.record_id;
    EXPECT_EQ(record.error == 0, example->score == 1) << record.record_id;
  }
  int64_t described = 0;
  for (const CountErrorRow& row : verdict.count_errors) described += row.n;
  EXPECT_EQ(described, std::ssize(log.records().count_errors));
}

// A list has one question: the plan counts what there is, and the file of examples has it.
TEST(PartialScores, ThePlanCountsTheQuestionsThatATaskHas) {
  StudyOptions options = options_with({});
  options.decide.tasks_from_generators = true;
  options.decide.looks = {0.5, 1};
  StudyBlocks blocks(tiny().tokenizer, {}, "", options);
  blocks.set_tasks({"induction", "common_words"});
  for (const BlockSize& size : blocks.sizes()) {
    int64_t examples = 0;
    for (const Document& document : blocks.documents(size.block)) {
      if (size.block == "AA" || document.look <= size.look) {
        examples += std::ssize(document.questions);
      }
    }
    EXPECT_EQ(size.examples, examples) << size.block << " " << size.look;
  }
  size_t lines = 0;
  for (const Document& document : blocks.documents("E1")) {
    std::istringstream text(example_lines(document, "E1", tiny().tokenizer));
    for (std::string line; std::getline(text, line); ++lines) {
      const auto example = nlohmann::json::parse(line);
      EXPECT_EQ(example["cluster"].get<std::string>(), document.id);
      EXPECT_EQ(example["prompt_len"].get<size_t>(), example["token_ids"].size());
      EXPECT_LE(
          example["prompt_len"].get<int64_t>() + example["params"]["answer_budget"].get<int64_t>(),
          example["target_len"].get<int64_t>());
      EXPECT_EQ(example["answers"].size(), document.task == "induction" ? 1u : 10u);
      EXPECT_EQ(example["scoring"].get<std::string>(),
                document.task == "induction" ? "token_accuracy" : "share");
      EXPECT_FALSE(example["needle_positions"].empty());
    }
  }
  EXPECT_EQ(lines, 16u);
}

}  // namespace
}  // namespace kv
