// Sampled answers and continuations on the engine: the same numbers under every arm, and what is
// written down of them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "decide/verdict_json.h"
#include "evaluate/generation.h"
#include "evaluate/generators.h"
#include "study/continuation_pass.h"
#include "study/decide_study.h"
#include "study/generation_records.h"
#include "tests/study/plants.h"

namespace kv::sampling_study_test {
namespace {

namespace fs = std::filesystem;

Document document_of(const std::string& task) {
  GeneratorOptions options;
  options.task = task;
  options.form = Form::kCompact;
  options.buckets = {320};
  options.documents = 1;
  options.questions_per_document = 2;
  return generate(tiny().tokenizer, options).front();
}

RunnerArm arm_of(const std::string& name, const std::string& spec, bool repeat = false) {
  return {name, {ArmSpec::parse(spec), std::nullopt}, repeat};
}

using Ids = std::vector<int32_t>;

std::vector<Ids> ids_of(const std::vector<Answer>& answers) {
  std::vector<Ids> out;
  for (const Answer& answer : answers) {
    for (const Attempt& attempt : answer.attempts) out.push_back(attempt.produced);
  }
  return out;
}

/// An arm that differs in its name alone, or in how the work is cut, draws what the control draws,
/// teacher-forced and freely; another arm draws from other logits.
TEST(SampledAnswers, OfEqualLogitsAreEqual) {
  for (const char* task : {"kv_recall", "count"}) {
    SCOPED_TRACE(task);
    const Document document = document_of(task);
    EngineRunner runner(tiny().model, {}, {}, line_end_ids(tiny().tokenizer), 20, {{8, 1}, 3, 77});
    const std::vector<RunnerArm> arms = {arm_of("bf16", "bf16"), arm_of("twin", "bf16"),
                                         arm_of("fp8_scale1", "fp8_scale1")};
    const auto answers = runner.answer(document, arms);
    ASSERT_EQ(answers[0][0].attempts.size(), 3u);
    EXPECT_EQ(ids_of(answers[0]), ids_of(answers[1]));
    EXPECT_NE(ids_of(answers[0])[0], ids_of(answers[0])[1]) << "samples are drawn anew";
    const auto alone = runner.answer(document, std::span(arms).first(1));
    EXPECT_EQ(ids_of(answers[0]), ids_of(alone[0]));
    EngineRunner narrow(tiny().model, {.rows_per_pass = 33}, {}, line_end_ids(tiny().tokenizer), 20,
                        {{8, 1}, 3, 77});
    EXPECT_EQ(ids_of(narrow.answer(document, std::span(arms).first(1))[0]), ids_of(alone[0]));
    EngineRunner other_seed(tiny().model, {}, {}, line_end_ids(tiny().tokenizer), 20,
                            {{8, 1}, 3, 78});
    EXPECT_NE(ids_of(other_seed.answer(document, std::span(arms).first(1))[0]), ids_of(alone[0]));
  }
}

TEST(GenerationOf, IsWhatAFreeGenerationIsKnownToHave) {
  Question forced, free;
  forced.answer_tokens = {5, 6, 7};
  const auto ids = [](const Question& question, const Attempt& attempt) {
    const GenerationRecord out = generation_of(question, attempt);
    EXPECT_EQ(out.margins.size(), out.ids.size());
    return out.ids;
  };
  using Known = std::vector<int64_t>;
  EXPECT_EQ(ids(forced, {{5, 6, 7}, {1, 2, 3}}), (Known{5, 6, 7}));
  EXPECT_EQ(ids(forced, {{5, 9, 7}, {1, 2, 3}}), (Known{5, 9})) << "7 was predicted behind a 6";
  EXPECT_EQ(ids(forced, {{-1, -1, -1}, {0, 0, 0}, -1, false}), (Known{-1}));
  EXPECT_EQ(ids(free, {{5, 9}, {1, 2}}), (Known{5, 9}));
  EXPECT_EQ(ids(free, {{5, 9}, {1, 2, 3}, 4}), (Known{5, 9, 4}));
  EXPECT_EQ(ids(free, {{}, {3}, 4}), (Known{4}));
  EXPECT_EQ(ids(free, {{5}, {1, 0}, -1, false}), (Known{5, -1}));
  EXPECT_EQ(generation_of(free, {{5}, {0.123456}}).margins, (std::vector<double>{0.1235}));
  const Attempt endless{Ids(1000, 3), std::vector<double>(1000, 1.0)};
  EXPECT_EQ(ids(free, endless).size(), kMostRecordedIds);
}

class SamplingStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale-sampling-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Verdict run(const AnswerSampling& sampling, Progress& progress) {
    StudyOptions options;
    options.decide = DecideOptions::quick();
    options.decide.documents = 6;
    options.decide.aa_documents = 4;
    options.decide.questions_per_document = 2;
    options.decide.min_documents = 2;
    options.decide.looks = {1};
    options.buckets = {320};
    options.tasks = {"kv_recall", "count"};
    options.form = Form::kCompact;
    options.sampling = sampling;
    RecordLog log(folder_ / "records.jsonl");
    DecideStudy study(tiny().model, tiny().tokenizer, {}, named_source(), options, folder_, log,
                      progress);
    Verdict verdict = study.run();
    notices_ = study.notices();
    return verdict;
  }

  fs::path folder_;
  std::vector<std::string> notices_;
};

TEST_F(SamplingStudy, ScoresAreMeansOverSamplesThatAreOnRecord) {
  NoProgress silent;
  const Verdict verdict = run({{1, 0.95}, 3, 5}, silent);
  const Records records = read_records(folder_ / "records.jsonl");
  std::map<std::string, int> generations;
  for (const GenerationRecord& one : records.generations) {
    EXPECT_NE(one.block, "PILOT");
    EXPECT_TRUE(one.sample >= 1 && one.sample <= 3);
    EXPECT_EQ(one.margins.size(), one.arm == "bf16" ? one.ids.size() : 0u);
    EXPECT_EQ(one.fdi > 0, one.arm != "bf16");
    ++generations[one.block + one.arm + one.example_id];
  }
  size_t partial = 0;
  for (const ExampleRecord& one : records.examples) {
    const double thirds = 3 * one.score;
    EXPECT_DOUBLE_EQ(thirds, std::round(thirds)) << one.record_id;
    partial += thirds == 1 || thirds == 2 ? 1 : 0;
    // Answers of the control on E1 stand under AA, where they were given.
    const int of_block = generations[one.block + one.arm + one.example_id];
    EXPECT_EQ(of_block + generations["AA" + one.arm + one.example_id], one.block == "AA" ? 6 : 3);
  }
  EXPECT_GT(partial, 0u);
  ASSERT_FALSE(verdict.divergence.empty());
  for (const DivergenceRow& row : verdict.divergence) {
    EXPECT_TRUE(row.is_sampled);
    EXPECT_EQ(row.n, 3 * 2 * row.documents) << row.block << row.arm;
  }
  EXPECT_NE(std::ranges::find_if(notices_,
                                 [](const std::string& notice) {
                                   return notice.find(
                                              "answers are sampled: temperature 1, top-p "
                                              "0.95, 3 a question") == 0;
                                 }),
            notices_.end());
}

struct StopAfter : NoProgress {
  int left = 0;
  void check() override {
    if (left-- <= 0) throw Interrupted("stopped");
  }
};

TEST_F(SamplingStudy, ResumesToTheSameBytes) {
  NoProgress silent;
  const AnswerSampling sampling{{1, 1}, 2, 6};
  const std::string expected = verdict_json(run(sampling, silent));
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  int stops = 0;
  for (int calls = 5;; calls += 25) {
    StopAfter progress;
    progress.left = calls;
    try {
      EXPECT_EQ(verdict_json(run(sampling, progress)), expected);
      break;
    } catch (const Interrupted&) {
      ++stops;
    }
  }
  EXPECT_GT(stops, 0);
}

TEST_F(SamplingStudy, ContinuationsPartWhereLogitsDo) {
  std::vector<Prompt> prompts(2);
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i].id = "p" + std::to_string(i);
    prompts[i].cluster = "same";
    prompts[i].tokens.assign(40 + 30 * i, static_cast<int32_t>(300 + i));
  }
  // All layers in BF16: another name for the control.
  const std::vector<ArmToRun> arms = {{ArmSpec::parse("fp8_scale1/bf16=0,1,2,3,4,5"), {}},
                                      {ArmSpec::parse("fp8_scale1"), {}}};
  ContinuationOptions options;
  options.block = "eval";
  options.bucket_edges = {64, 128};
  options.tokens = 12;
  NoProgress silent;
  for (const AnswerSampling& sampling : {AnswerSampling{}, AnswerSampling{{1, 0.9}, 2, 3}}) {
    fs::remove(folder_ / "records.jsonl");
    options.sampling = sampling;
    RecordLog log(folder_ / "records.jsonl");
    run_continuation_pass(tiny().model, std::span(prompts).first(1), arms, options, log, silent);
    run_continuation_pass(tiny().model, prompts, arms, options, log, silent);
    const size_t size = log.size();
    run_continuation_pass(tiny().model, prompts, arms, options, log, silent);
    EXPECT_EQ(log.size(), size) << "everything is there";
    EXPECT_EQ(log.generations().size(), static_cast<size_t>(2 * 3 * sampling.samples));
    const auto rows = divergence_rows(log.records());
    ASSERT_EQ(rows.size(), 4u);
    for (const DivergenceRow& row : rows) {
      EXPECT_EQ(row.n, sampling.samples);
      EXPECT_EQ(row.documents, 1);
      EXPECT_TRUE(row.arm == "fp8_scale1" || row.diverged == 0) << row.arm;
    }
    EXPECT_EQ(rows[0].bucket, "64");
    EXPECT_EQ(rows[1].bucket, "128");
  }
}

}  // namespace
}  // namespace kv::sampling_study_test
