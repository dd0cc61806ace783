// The main job on models whose right verdict is known beforehand.

#include "study/decide_study.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/load_tokenizer.h"
#include "decide/verdict_json.h"
#include "kvscale/error.h"
#include "study/own_text.h"
#include "tests/study/plants.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

/// A study of a (planted) built-in model in a folder of its own.
struct Study {
  explicit Study(std::shared_ptr<const Model> planted, int64_t bucket = 256)
      : model(std::move(planted)), tokenizer(load_tokenizer(model->checkpoint())) {
    static int number = 0;
    folder = fs::temp_directory_path() /
             ("kvscale-study-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
    fs::create_directories(folder);
    options.decide = DecideOptions::quick();
    options.decide.documents = 30;
    options.decide.questions_per_document = 7;
    options.decide.commands.repeat = "kvscale decide tiny";
    options.buckets = {bucket};
    options.tasks = {"kv_recall", "copy_span"};
    options.form = Form::kCompact;
  }
  ~Study() { fs::remove_all(folder); }

  Verdict run(Progress& progress) {
    RecordLog log(folder / "records.jsonl");
    Prompt own{"text", "", tokenizer.encode(own_text()), {}, Check::kContains};
    own.tokens.resize(250);
    CalibrationSource source;
    source.model_sha256 = model->checkpoint().content_sha256();
    DecideStudy study(model, tokenizer, {&own, 1}, source, options, folder, log, progress);
    return study.run();
  }
  Verdict run() {
    NoProgress silent;
    return run(silent);
  }

  std::shared_ptr<const Model> model;
  Tokenizer tokenizer;
  StudyOptions options;
  fs::path folder;
};

std::string trace_of(const Verdict& verdict) {
  std::string out;
  for (const TraceEntry& t : verdict.state_trace)
    out += t.state + " " + t.arm + ": " + t.event + "\n";
  return out;
}

std::vector<float> logits_of(const std::shared_ptr<const Model>& model) {
  Engine engine(model);
  engine.add_arm(ArmSpec{}, std::nullopt, 128);
  Sequence sequence = engine.start(0);
  const std::vector<int32_t> tokens =
      load_tokenizer(model->checkpoint()).encode("kapidu: lemo\nrebi: ");
  const Request request{&sequence, tokens, 0, nullptr};
  std::vector<float> out;
  engine.run({&request, 1}, [&](std::span<const LogitRow> rows) {
    for (const LogitRow& row : rows) out.insert(out.end(), row.logits.begin(), row.logits.end());
  });
  return out;
}

TEST(PlantedModels, PowerOfTwoPlantsLeaveTheControlBitIdentical) {
  const std::vector<float> expected = logits_of(Plant().load());
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kBenign).load()), expected);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kClipping).load()), expected);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kClipping, 'v').load()), expected);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kHeadDispersion).load()), expected);
}

TEST(PlantedModels, BenignKeepsScaleOne) {
  Study study(PlantedFolder(PlantKind::kBenign).load());
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "KEEP_SCALE_ONE") << verdict.sentence << "\n"
                                                     << trace_of(verdict);
  EXPECT_EQ(verdict.layout, "fp8_scale1");
  EXPECT_TRUE(verdict.tasks_from_generators);
}

TEST(PlantedModels, ClippingIsCalibratedPerTensor) {
  Study study(PlantedFolder(PlantKind::kClipping).load());
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "CALIBRATE_PER_TENSOR") << verdict.sentence << "\n"
                                                           << trace_of(verdict);
  EXPECT_EQ(verdict.layout, "fp8_tensor");
  // What the control stored of every context is on record, and the calibration set was held to it.
  std::map<std::string, int> contexts;
  for (const AmaxRecord& one : read_records(study.folder / "records.jsonl").amaxes) {
    ++contexts[one.block];
    EXPECT_EQ(one.amax.size(), 6u * 2 * 2);
  }
  EXPECT_EQ(contexts["E1"], 30);
  EXPECT_EQ(contexts["E2"], 30);
  EXPECT_GE(contexts["CAL"], 6);
  EXPECT_EQ(contexts.size(), 3u);
  for (const std::string& notice : verdict.notices) {
    EXPECT_EQ(notice.find("represents what is evaluated was not tested"), std::string::npos);
  }
}

TEST(PlantedModels, HeadDispersionGetsAScalePerHead) {
  Study study(PlantedFolder(PlantKind::kHeadDispersion).load());
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "STATIC_PER_HEAD") << verdict.sentence << "\n"
                                                      << trace_of(verdict);
  EXPECT_EQ(verdict.layout, "fp8_head");
}

TEST(PlantedModels, AnOffsetLayerIsKeptInBf16) {
  Plant plant;
  constexpr int kLayer = 3;
  std::vector<float> offset(128);
  for (size_t i = 0; i < offset.size(); ++i) offset[i] = (i % 2 == 0 ? 1.0f : -1.0f) * 24.0f;
  Study study(plant.load()->with_key_offset(kLayer, offset));
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "SELECTIVE_BF16") << verdict.sentence << "\n"
                                                     << trace_of(verdict);
  EXPECT_EQ(verdict.bf16_layers, std::vector<int>{kLayer});
  EXPECT_NE(verdict.launch.at("vllm").flags.find("--kv-cache-dtype-skip-layers 3"),
            std::string::npos)
      << verdict.launch.at("vllm").flags;
}

// What one layer in BF16 repairs is beyond repair when all layers have it.
TEST(PlantedModels, AnOffsetInEveryLayerIsRejected) {
  std::vector<float> offset(128);
  for (size_t i = 0; i < offset.size(); ++i) offset[i] = (i % 2 == 0 ? 1.0f : -1.0f) * 24.0f;
  const Plant plant;
  std::shared_ptr<const Model> model = plant.load();
  for (int64_t layer = 0; layer < model->spec().num_layers; ++layer) {
    model = model->with_key_offset(layer, offset);
  }
  Study study(model);
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8") << verdict.sentence << "\n" << trace_of(verdict);
  EXPECT_TRUE(verdict.sub_reason.starts_with("QUALITY")) << verdict.sub_reason;
  EXPECT_EQ(verdict.exit_code, 20);
}

TEST(PlantedModels, FortyExamplesAreTooFew) {
  Study study(Plant().load());
  study.options.decide.documents = 10;
  study.options.decide.questions_per_document = 4;
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "INCONCLUSIVE") << verdict.sentence;
  EXPECT_EQ(verdict.sub_reason, "INSUFFICIENT_SAMPLES") << trace_of(verdict);
  ASSERT_FALSE(verdict.next.empty());
  EXPECT_NE(verdict.next[0].command.find("--documents"), std::string::npos)
      << verdict.next[0].command;
}

/// Asks to stop after so many records' worth of progress calls.
struct StopAfter : NoProgress {
  explicit StopAfter(int calls) : left(calls) {}
  void check() override {
    if (left-- <= 0) throw Interrupted("stopped");
  }
  int left;
};

TEST(Resume, AStoppedStudyGoesOnAndEndsInTheSameVerdict) {
  Plant plant;
  const auto model = plant.load();
  Study whole(model), pieces(model);
  const std::string expected = verdict_json(whole.run());
  int stops = 0;
  for (int calls = 3;; calls += 7) {
    StopAfter progress(calls);
    try {
      EXPECT_EQ(verdict_json(pieces.run(progress)), expected);
      break;
    } catch (const Interrupted&) {
      ++stops;
    }
  }
  EXPECT_GT(stops, 2);
}

// Case 37: what a broken control does under FP8 says nothing about FP8.
TEST(CalibCases, Case37ABrokenControlEndsTheRunBeforeAnythingIsCompared) {
  Plant plant;
  plant.scale_rows("model.norm.weight", 0, 1, 256, 0);  // every word as likely as every other
  Study study(plant.load());
  study.options.form = Form::kPlain;
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "INCONCLUSIVE");
  EXPECT_EQ(verdict.sub_reason, "CONTROL_BROKEN") << trace_of(verdict);
  EXPECT_NE(verdict.sentence.find("perplexity 1024 over 255 tokens"), std::string::npos)
      << verdict.sentence;
  EXPECT_TRUE(read_records(study.folder / "records.jsonl").examples.empty());
}

TEST(Looks, EachHasItsPrefixOfEveryTaskAndAStopInsideOneLosesNothing) {
  Plant plant;
  const auto model = plant.load();
  const auto with_looks = [](Study& study) {
    study.options.decide.looks = {0.5, 1};
    study.options.decide.documents = 60;
    study.options.decide.questions_per_document = 2;
    study.options.decide.aa_documents = 36;  // more than the first look has
  };
  Study whole(model), pieces(model);
  with_looks(whole);
  with_looks(pieces);
  const Verdict verdict = whole.run();
  int stops = 0;
  for (int calls = 60;; calls += 60) {
    StopAfter progress(calls);
    try {
      EXPECT_EQ(verdict_json(pieces.run(progress)), verdict_json(verdict));
      break;
    } catch (const Interrupted&) {
      ++stops;
    }
  }
  EXPECT_GE(stops, 1);
  // 60 documents of two tasks: 30 in each look, 15 of each task, half of them in each half.
  std::map<std::string, std::array<std::set<std::string>, 5>> documents;
  for (const ExampleRecord& record : read_records(whole.folder / "records.jsonl").examples) {
    if (record.block != "E1" || record.arm != kControlArm) continue;
    auto& here = documents[record.task];
    here[static_cast<size_t>(record.look)].insert(record.document);
    here[static_cast<size_t>(2 + record.half)].insert(record.document);
  }
  ASSERT_EQ(documents.size(), 2u);
  const ArmTable& table = verdict.tables.front();
  for (const auto& [task, here] : documents) {
    EXPECT_EQ(here[1].size(), 15u) << task;
    EXPECT_EQ(here[2].size(), table.look.is_last() ? 15u : 3u) << task << ": of AA, beyond look 1";
    EXPECT_NEAR(static_cast<double>(here[3].size()), static_cast<double>(here[4].size()), 1)
        << task;
  }
  EXPECT_EQ(table.buckets[0].n, table.look.is_last() ? 120 : 60);
}

}  // namespace
}  // namespace kv
