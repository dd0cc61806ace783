// Calibration passes on the built-in model: what enters them, and that nothing of them is lost.

#include "study/calibration_pass.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <set>

#include "checkpoint/load_tokenizer.h"
#include "evaluate/near_duplicates.h"
#include "study/blocks.h"
#include "study/decide_study.h"
#include "study/disjoint.h"
#include "study/own_text.h"
#include "tests/study/plants.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

const std::shared_ptr<const Model>& built_in_model() {
  static const auto model =
      Model::load(Checkpoint::open(std::string(KV_SOURCE_DIR) + "/models/tiny"));
  return model;
}

/// Pieces of kvscale's own text, of unequal lengths.
std::vector<Prompt> pieces(const std::vector<int64_t>& lengths) {
  static const std::vector<int32_t> text =
      load_tokenizer(built_in_model()->checkpoint()).encode(own_text());
  std::vector<Prompt> out;
  size_t begin = 0;
  for (const int64_t length : lengths) {
    Prompt one;
    one.id = "p" + std::to_string(out.size());
    const auto from = text.begin() + static_cast<std::ptrdiff_t>(begin);
    one.tokens.assign(from, from + length);
    begin += static_cast<size_t>(length);
    out.push_back(std::move(one));
  }
  return out;
}

class CalibrationPassTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale-pass-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// The scale file that a run in this folder gives.
  std::string scale_file(const std::string& name, std::span<const CalibrationExample> examples,
                         const Estimator& estimator, Progress& progress,
                         int64_t tokens_between_saves = CalibrationOptions{}.tokens_between_saves) {
    RecordLog log(folder_ / (name + ".jsonl"));
    const CalibrationOptions options{
        estimator, false, folder_ / (name + ".bin"), {}, tokens_between_saves};
    const CalibrationPass pass =
        run_calibration_pass(built_in_model(), examples, options, log, progress);
    write_calibration(folder_ / (name + ".json"),
                      calibration_of(*built_in_model(), pass, examples, estimator, {}));
    std::stringstream text;
    text << std::ifstream(folder_ / (name + ".json")).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

// Padding and template tokens never enter: a pass has one prompt and no padding, prompts given as
// ids are fed as they are, and what was fed is counted where it is stored.
TEST_F(CalibrationPassTest, WhatWasFedAndNothingElseEnters) {
  const std::vector<Prompt> prompts = pieces({5, 64, 65, 130});
  RecordLog log(folder_ / "records.jsonl");
  NoProgress silent;
  const auto examples = calibration_examples(prompts);
  const CalibrationPass pass =
      run_calibration_pass(built_in_model(), examples, {Estimator(), true, {}, {}}, log, silent);
  std::set<int32_t> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    ids.insert(prompts[i].tokens.begin(), prompts[i].tokens.end());
    EXPECT_EQ(pass.examples[i].tokens, std::ssize(prompts[i].tokens));
    // Alone, without the longer ones before and after it: the same magnitudes.
    const auto alone = calibration_examples({&prompts[i], 1});
    RecordLog own(folder_ / ("alone" + prompts[i].id));
    EXPECT_EQ(run_calibration_pass(built_in_model(), alone, {}, own, silent).examples[0].amax,
              pass.examples[i].amax);
  }
  const ModelSpec& spec = built_in_model()->spec();
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    for (const Side side : kSides) {
      EXPECT_EQ(pass.values->tensor(layer, side).count(), 264 * spec.num_kv_heads * spec.head_dim);
    }
  }
  const Calibration c = calibration_of(*built_in_model(), pass, examples, {}, {});
  EXPECT_EQ(c.source.token_ids, std::vector<int32_t>(ids.begin(), ids.end()));
  EXPECT_EQ(c.source.tokens, 264);
  EXPECT_EQ(c.source.prompts_sha256, prompts_sha256(prompts));
  EXPECT_EQ(c, calibrate(built_in_model(), prompts, {}, {}, silent));
  EXPECT_EQ(pass.values->tensor(3, Side::kK).amax(), c.tensor_amax(3, Side::kK));
}

/// Runs out of memory after so many examples.
struct OutOfMemory : NoProgress {
  explicit OutOfMemory(int examples) : left(examples) {}
  void check() override {
    if (left-- <= 0) throw std::bad_alloc();
  }
  int left;
};

TEST_F(CalibrationPassTest, RunningOutOfMemoryLosesNothing) {
  const auto examples = calibration_examples(pieces({40, 30, 50, 20, 60, 10}));
  NoProgress silent;
  for (const char* name : {"amax", "mse"}) {
    const Estimator estimator = Estimator::parse(name);
    const std::string whole = scale_file("whole", examples, estimator, silent);
    for (const int fit : {2, 1, 0}) {
      OutOfMemory memory(fit);
      EXPECT_THROW(scale_file("pieces", examples, estimator, memory), std::bad_alloc);
    }
    // What was recorded stays; histograms, which were not saved in time, are made again.
    const size_t recorded = read_records(folder_ / "pieces.jsonl").amaxes.size();
    EXPECT_EQ(recorded, estimator.needs_values() ? 2u : 3u);
    OutOfMemory rest(static_cast<int>(examples.size()));
    EXPECT_EQ(scale_file("pieces", examples, estimator, rest), whole) << name;
    OutOfMemory none(0);
    EXPECT_EQ(scale_file("pieces", examples, estimator, none), whole) << "all is there";
    for (const char* file : {"whole.jsonl", "pieces.jsonl", "whole.bin", "pieces.bin"}) {
      fs::remove(folder_ / file);
    }
  }
}

// Histograms that hold some of the examples already must get the others once.
TEST_F(CalibrationPassTest, HistogramsGoOnFromTheirLastSave) {
  const auto examples = calibration_examples(pieces({40, 30, 50, 20, 60, 10}));
  NoProgress silent;
  const Estimator mse = Estimator::parse("mse");
  const std::string whole = scale_file("whole", examples, mse, silent);
  for (const int64_t tokens_between_saves : {1, 70}) {
    for (const int fit : {2, 2, 1}) {
      OutOfMemory memory(fit);
      EXPECT_THROW(scale_file("pieces", examples, mse, memory, tokens_between_saves),
                   std::bad_alloc);
    }
    // 40 and 30 tokens are the first 70, 50 and 20 the next; the fifth example follows.
    EXPECT_EQ(read_records(folder_ / "pieces.jsonl").amaxes.size(), 5u);
    OutOfMemory rest(tokens_between_saves == 1 ? 1 : 2);  // what was saved is not run again
    EXPECT_EQ(scale_file("pieces", examples, mse, rest, tokens_between_saves), whole);
    for (const char* file : {"pieces.jsonl", "pieces.bin"}) fs::remove(folder_ / file);
  }
}

TEST_F(CalibrationPassTest, DamagedHistogramsAreMadeAgain) {
  const auto examples = calibration_examples(pieces({40, 30}));
  NoProgress silent;
  const Estimator mse = Estimator::parse("mse");
  const std::string whole = scale_file("run", examples, mse, silent);
  std::fstream(folder_ / "run.bin", std::ios::in | std::ios::out | std::ios::binary).seekp(200)
      << "damage";
  EXPECT_EQ(scale_file("run", examples, mse, silent), whole);
}

// ---- blocks ----

StudyOptions block_options() {
  StudyOptions options;
  options.decide = DecideOptions::quick();
  options.decide.documents = 10;
  options.decide.questions_per_document = 2;
  options.buckets = {256, 512};
  options.form = Form::kCompact;
  return options;
}

TEST(StudyBlocksTest, GeneratedCalibrationHasTheTasksAndLengthsOfTheBlocks) {
  const Tokenizer tokenizer = load_tokenizer(built_in_model()->checkpoint());
  StudyOptions options = block_options();
  options.decide.tasks_from_generators = true;
  const std::vector<Prompt> own = pieces({100});
  StudyBlocks blocks(tokenizer, own, "text", options);
  blocks.set_tasks({"kv_recall", "copy_span", "niah_single"});
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const CalibrationExample& one : blocks.calibration_examples()) {
    ++counts[{one.bucket, one.task}];
  }
  // The block has 4, 3 and 3 documents of the tasks: six could not come within 0.05 of that.
  for (const char* bucket : {"256", "512"}) {
    EXPECT_EQ((counts[{bucket, "kv_recall"}]), 3);
    EXPECT_EQ((counts[{bucket, "copy_span"}]), 2);
    EXPECT_EQ((counts[{bucket, "niah_single"}]), 2);
  }
  for (const char* block : {"AA", "E1", "E2", "E3"}) blocks.documents(block);
  EXPECT_EQ(blocks.shared(), "");
}

/// Prompts with answers of random tokens: `counts[i]` in a bucket each, some of one cluster.
std::vector<Prompt> answered(const std::vector<int>& counts, const std::vector<int64_t>& lengths) {
  std::mt19937 random(6);
  std::vector<Prompt> out;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    for (int i = 0; i < counts[bucket]; ++i) {
      Prompt one;
      one.id = "u" + std::to_string(out.size());
      one.accepted_answers = {"x"};
      for (int64_t t = 0; t < lengths[bucket] - i % 7; ++t) {
        one.tokens.push_back(static_cast<int32_t>(random() % 900));
      }
      out.push_back(std::move(one));
    }
  }
  return out;
}

TEST(StudyBlocksTest, CalibrationOnPromptsHasTheirProportions) {
  const Tokenizer tokenizer = load_tokenizer(built_in_model()->checkpoint());
  const std::vector<Prompt> prompts = answered({81, 20}, {200, 400});
  StudyBlocks blocks(tokenizer, prompts, "p.jsonl", block_options());
  std::map<std::string, int> counts, evaluated;
  for (const CalibrationExample& one : blocks.calibration_examples()) ++counts[one.bucket];
  for (const Document& one : blocks.documents("E1")) ++evaluated[one.bucket];
  EXPECT_EQ(evaluated["256"], 21);
  EXPECT_EQ(evaluated["512"], 5);
  EXPECT_EQ(counts["256"], 20);
  EXPECT_EQ(counts["512"], 5);
  EXPECT_EQ(blocks.shared(), "");
}

TEST_F(CalibrationPassTest, BlocksThatShareAnExampleEndTheRunBeforeItBegins) {
  std::vector<Prompt> prompts = answered({16}, {200});
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i].cluster = "source " + std::to_string(i);
    prompts[i].id = "the same";
  }
  StudyOptions options = block_options();
  options.buckets = {256};
  RecordLog log(folder_ / "records.jsonl");
  NoProgress silent;
  const auto verdict_of = [&](const CalibrationSource& source) {
    return DecideStudy(built_in_model(), load_tokenizer(built_in_model()->checkpoint()), prompts,
                       source, options, folder_, log, silent)
        .run();
  };
  EXPECT_EQ(verdict_of({}).sub_reason, "PROVENANCE") << "a model without a hash";
  const Verdict verdict = verdict_of(named_source());
  EXPECT_EQ(verdict.outcome, Outcome::kInconclusive);
  EXPECT_EQ(verdict.sub_reason, "NOT_DISJOINT");
  EXPECT_NE(verdict.sentence.find("\"the same\" of block "), std::string::npos);
  EXPECT_NE(verdict.sentence.find("have the same id"), std::string::npos) << verdict.sentence;
  EXPECT_EQ(log.size(), 0u);
}

std::vector<int32_t> counting(int32_t from, int32_t n) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < n; ++i) out.push_back(from + i);
  return out;
}

TEST(Disjoint, NamesThePairAndWhatItShares) {
  const std::vector<int32_t> a = counting(0, 100), b = counting(1000, 100);
  std::vector<int32_t> near = a;
  near.back() = 5000;  // 92 of 94 different shingles
  const auto shared = [](const BlockExample& one, const BlockExample& other) {
    const std::vector<BlockExample> examples = {one, other};
    return shared_by_blocks(examples);
  };
  EXPECT_EQ(shared({"CAL", "one", "", a}, {"E1", "two", "", b}), "");
  EXPECT_EQ(shared({"CAL", "one", "", a}, {"E1", "one", "", b}),
            "\"one\" of block CAL and \"one\" of block E1 have the same id");
  EXPECT_EQ(shared({"CAL", "one", "", a}, {"E2", "two", "", a}),
            "\"one\" of block CAL and \"two\" of block E2 are the same tokens");
  EXPECT_EQ(shared({"E1", "one", "book", a}, {"E2", "two", "book", b}),
            "\"one\" of block E1 and \"two\" of block E2 come from the same source");
  EXPECT_EQ(
      shared({"E1", "one", "", a}, {"E3", "two", "", near}),
      "\"one\" of block E1 and \"two\" of block E3 are near-duplicates: 98 % of their runs of "
      "8 tokens are the same (less than 80 % are allowed)");
  EXPECT_EQ(shared({"E1", "one", "book", a}, {"E1", "one", "book", a}), "") << "one block";
}

// A chain: each is near the next, the ends are not near each other. Blocks share only where a pair
// of neighbours is parted.
TEST(Disjoint, NearDuplicatesThroughOthersAreNoPair) {
  const std::vector<int32_t> first = counting(0, 100), middle = counting(8, 100),
                             last = counting(16, 100);
  ASSERT_GE(shingle_similarity(first, middle), kNearDuplicate);
  ASSERT_LT(shingle_similarity(first, last), kNearDuplicate);
  std::vector<BlockExample> examples = {
      {"E1", "a", "", first}, {"E1", "b", "", middle}, {"E2", "c", "", last}};
  EXPECT_NE(shared_by_blocks(examples).find("\"b\" of block E1 and \"c\" of block E2"),
            std::string::npos);
  examples[1].block = "E2";
  EXPECT_NE(shared_by_blocks(examples).find("\"a\" of block E1 and \"b\" of block E2"),
            std::string::npos);
  examples.erase(examples.begin() + 1);
  EXPECT_EQ(shared_by_blocks(examples), "");
}

}  // namespace
}  // namespace kv
