// The main job on models whose right verdict is known beforehand.

#include "study/decide_study.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "checkpoint/load_tokenizer.h"
#include "decide/verdict_json.h"
#include "evaluate/scorers.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "study/own_text.h"
#include "tests/study/plants.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

// As short as a document with seven questions can be: what a plant does to the cache it does at any
// length.
constexpr int64_t kBucket = 128;

/// A study of a (planted) built-in model in a folder of its own.
struct Study {
  explicit Study(std::shared_ptr<const Model> planted, int64_t bucket = kBucket)
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
    options.tasks = {"kv_recall"};
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

std::vector<float> logits_of(const std::shared_ptr<const Model>& model,
                             const std::string& arm = "bf16") {
  Engine engine(model);
  engine.add_arm(ArmSpec::parse(arm), std::nullopt, 128);
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

/// Exponents from -9 to 9, by position, in no order.
TokenDispersion dispersion() {
  return TokenDispersion([](int64_t position) {
    return static_cast<int>(mix(static_cast<uint64_t>(position)) % 19) - 9;
  });
}

TEST(PlantedModels, PowerOfTwoPlantsLeaveTheControlBitIdentical) {
  const Plant plant;
  const auto plain = plant.load();
  const std::vector<float> expected = logits_of(plain);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kBenign).load()), expected);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kClipping).load()), expected);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kClipping, 'v').load()), expected);
  EXPECT_EQ(logits_of(PlantedFolder(PlantKind::kHeadDispersion).load()), expected);
  const auto dispersed = plain->with_token_dispersion(dispersion());
  EXPECT_EQ(logits_of(dispersed), expected);
  // A scale per token takes the factors up, bit by bit; one for all tokens cannot.
  EXPECT_EQ(logits_of(dispersed, "fp8_token_head"), logits_of(plain, "fp8_token_head"));
  EXPECT_NE(logits_of(dispersed, "fp8_scale1"), logits_of(plain, "fp8_scale1"));
  // Without dispersion, a static key in a page with a scale per token is that static key.
  const auto still = plain->with_token_dispersion(TokenDispersion([](int64_t) { return 0; }));
  EXPECT_EQ(logits_of(still, "fp8_scale1"), logits_of(plain, "fp8_scale1"));
}

/// Timed runs of the serving engine over its whole sweep: inter-token times as straight lines that
/// meet at 7,000 tokens, and a prefill that is not harmed.
void add_sweep(RecordLog& log) {
  for (const int64_t length : {kBucket, int64_t{4096}, int64_t{16384}}) {
    for (int64_t run = 0; run < 5; ++run) {
      for (const char* arm : {"bf16", "bf16#2", "fp8_scale1"}) {
        const bool is_fp8 = arm == std::string("fp8_scale1");
        const auto tokens = static_cast<double>(length);
        const double itl = is_fp8 ? 6.58 + 2.37e-5 * tokens : 6.44 + 4.37e-5 * tokens;
        log.append(
            TimingRecord{"timing/" + std::to_string(length) + "/" + std::to_string(run) + "/" + arm,
                         arm, std::to_string(length), length, run, 0.05 * tokens, itl, 1000 / itl});
      }
    }
  }
}

TEST(PlantedModels, BenignKeepsScaleOneAndWithoutNeedOfCapacityGainsNothing) {
  Study study(PlantedFolder(PlantKind::kBenign).load());
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "KEEP_SCALE_ONE") << verdict.sentence << "\n"
                                                     << trace_of(verdict);
  EXPECT_EQ(verdict.layout, "fp8_scale1");
  EXPECT_TRUE(verdict.tasks_from_generators);

  // The plant "no gain": the same answers, contexts far below the break-even, capacity not needed.
  {
    RecordLog log(study.folder / "records.jsonl");
    add_sweep(log);
  }
  study.options.decide.capacity_needed = false;
  const Verdict short_contexts = study.run();
  EXPECT_EQ(name(short_contexts.outcome), "REJECT_FP8") << trace_of(short_contexts);
  EXPECT_EQ(short_contexts.sub_reason, "NO_SYSTEMS_GAIN: SHORT_CONTEXT");
  EXPECT_NE(short_contexts.sentence.find("decodes faster from 7000 tokens on"), std::string::npos)
      << short_contexts.sentence;
}

// What a probe of the backend found stands in the records; nothing is run for it.
TEST(PlantedModels, ABackendWithoutAnFp8PathIsAFallback) {
  Study study(Plant().load());
  {
    RecordLog log(study.folder / "records.jsonl");
    for (const char* layout : {"fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head"}) {
      log.append(SupportRecord{std::string("probe/") + layout, layout, study.options.decide.target,
                               false, "the engine started with a BF16 cache"});
    }
  }
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8") << trace_of(verdict);
  EXPECT_EQ(verdict.sub_reason, "BACKEND_FALLBACK");
  EXPECT_TRUE(read_records(study.folder / "records.jsonl").examples.empty());
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

TEST(PlantedModels, TokenDispersionGetsAScalePerToken) {
  Study study(Plant().load()->with_token_dispersion(dispersion()));
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "DYNAMIC_PER_TOKEN_HEAD") << verdict.sentence << "\n"
                                                             << trace_of(verdict);
  EXPECT_TRUE(std::ranges::any_of(verdict.reasons, [](const Reason& reason) {
    return reason.rule == "TOKEN_DRIFT" && reason.text.find("99th percentile") != std::string::npos;
  })) << trace_of(verdict);
  // The other layouts were judged, and fail.
  for (const ArmTable& table : verdict.tables) {
    if (table.reference != kControlArm) continue;
    EXPECT_EQ(table.is_pass, table.arm == verdict.layout) << table.arm;
  }
}

constexpr int kOffsetLayer = 3;
// What AnOffsetLayerIsKeptInBf16 searches for and finds.
constexpr float kOffset = 48;

std::vector<float> offset_of(float size) {
  std::vector<float> out(128);
  for (size_t i = 0; i < out.size(); ++i) out[i] = i % 2 == 0 ? size : -size;
  return out;
}

/// Share of the questions of a few documents that the model answers, by arm.
std::map<std::string, double> answered(const std::shared_ptr<const Model>& model,
                                       const std::vector<std::string>& names) {
  GeneratorOptions options;
  options.task = "kv_recall";
  options.form = Form::kCompact;
  options.buckets = {kBucket};
  options.documents = 5;
  options.questions_per_document = 7;
  options.master_seed = 9;
  const auto documents = generate(load_tokenizer(model->checkpoint()), options);
  NoProgress silent;
  std::vector<Prompt> contexts;
  for (const Document& one : documents) {
    contexts.push_back({one.id, "", one.context, {}, Check::kContains});
  }
  const Calibration scales = calibrate(model, contexts, {}, {}, silent);
  std::vector<RunnerArm> arms;
  for (const std::string& one : names) {
    RunnerArm arm{one, {ArmSpec::parse(one), {}}, false};
    if (arm.arm.spec.needs_scales()) arm.arm.scales = scales.scales(one == "fp8_head");
    arms.push_back(std::move(arm));
  }
  EngineRunner runner(model, {}, {}, {}, 1);
  std::map<std::string, double> out;
  for (const Document& document : documents) {
    const auto answers = runner.answer(document, arms);
    for (size_t a = 0; a < arms.size(); ++a) {
      for (size_t q = 0; q < document.questions.size(); ++q) {
        const Question& question = document.questions[q];
        out[names[a]] += score_tokens(question.check, question.answer_tokens,
                                      answers[a][q].attempts.front().produced)
                             .value /
                         35;
      }
    }
  }
  return out;
}

/// The smallest offset, by doubling, that costs every FP8 layout 20 points: the 5 that count are
/// then beyond doubt with the 210 questions of a study.
float found_offset(const std::shared_ptr<const Model>& model, double control) {
  const std::vector<std::string> layouts = {"fp8_scale1", "fp8_tensor", "fp8_head",
                                            "fp8_token_head"};
  for (float size = 24; size < 100; size *= 2) {
    const auto scores = answered(model->with_key_offset(kOffsetLayer, offset_of(size)), layouts);
    const auto is_lost = [&](const auto& one) { return one.second <= control - 0.2; };
    if (std::ranges::all_of(scores, is_lost)) return size;
  }
  return 0;
}

TEST(PlantedModels, AnOffsetLayerIsKeptInBf16) {
  const Plant plant;
  const auto plain = plant.load();
  const double control = answered(plain, {"bf16"}).at("bf16");
  EXPECT_EQ(found_offset(plain, control), kOffset);
  const auto planted = plain->with_key_offset(kOffsetLayer, offset_of(kOffset));
  EXPECT_GE(answered(planted, {"bf16"}).at("bf16"), control - 0.02) << "BF16 holds the offset";

  Study study(planted);
  const Verdict verdict = study.run();
  EXPECT_EQ(name(verdict.outcome), "SELECTIVE_BF16") << verdict.sentence << "\n"
                                                     << trace_of(verdict);
  EXPECT_EQ(verdict.bf16_layers, std::vector<int>{kOffsetLayer});
  EXPECT_NE(verdict.launch.at("vllm").flags.find("--kv-cache-dtype-skip-layers 3"),
            std::string::npos)
      << verdict.launch.at("vllm").flags;
  // The layer, and that its keys alone suffice, after three ablation runs.
  EXPECT_EQ(verdict.ablation.size(), 3u);
  const auto side = std::ranges::find(verdict.reasons, "ONE_SIDE", &Reason::rule);
  ASSERT_NE(side, verdict.reasons.end());
  EXPECT_NE(side->text.find("fp8_scale1/bf16=3k"), std::string::npos) << side->text;
  EXPECT_NE(side->text.find("gone: enough"), std::string::npos) << side->text;
}

// What one layer in BF16 repairs is beyond repair when all layers have it.
TEST(PlantedModels, AnOffsetInEveryLayerIsRejected) {
  const Plant plant;
  std::shared_ptr<const Model> model = plant.load();
  for (int64_t layer = 0; layer < model->spec().num_layers; ++layer) {
    model = model->with_key_offset(layer, offset_of(kOffset));
  }
  Study study(model);
  study.options.decide.questions_per_document = 3;  // a loss this large needs no more
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

/// The run's records as they were when a share of them was written; the last line torn.
void cut_records(const Study& from, const Study& to, double share) {
  std::ifstream in(from.folder / "records.jsonl", std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(in), {});
  std::ofstream out(to.folder / "records.jsonl", std::ios::binary);
  out << all.substr(0, static_cast<size_t>(share * static_cast<double>(all.size())));
}

TEST(Resume, AStoppedStudyGoesOnAndEndsInTheSameVerdict) {
  const Plant plant;
  const auto model = plant.load();
  Study whole(model), stopped(model);
  const std::string expected = verdict_json(whole.run());
  // Stopped where it asks, early.
  StopAfter progress(12);
  EXPECT_THROW(stopped.run(progress), Interrupted);
  const size_t before = read_records(stopped.folder / "records.jsonl").examples.size();
  EXPECT_GT(before, 0u);
  EXPECT_THROW(
      [&] {
        StopAfter more(20);
        stopped.run(more);
      }(),
      Interrupted);
  EXPECT_GT(read_records(stopped.folder / "records.jsonl").examples.size(), before);
  // Killed anywhere: what it had written is a prefix of what it would write.
  for (const double share : {0.7, 0.999}) {
    Study pieces(model);
    cut_records(whole, pieces, share);
    EXPECT_EQ(verdict_json(pieces.run()), expected) << share;
  }
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
    study.options.tasks = {"kv_recall", "copy_span"};
    study.options.decide.looks = {0.5, 1};
    study.options.decide.documents = 60;
    study.options.decide.questions_per_document = 2;
    study.options.decide.aa_documents = 36;  // more than the first look has
  };
  Study whole(model), pieces(model);
  with_looks(whole);
  with_looks(pieces);
  const Verdict verdict = whole.run();
  cut_records(whole, pieces, 0.85);
  EXPECT_EQ(verdict_json(pieces.run()), verdict_json(verdict));
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
