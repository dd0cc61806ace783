// Every outcome is reached from a world whose truth is known.

#include "decide/decide.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "decide/verdict_json.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "targets/targets.h"
#include "tests/decide/simulated_study.h"
#include "tests/decide/worlds.h"

namespace kv {
namespace {

using test::SimulatedStudy;
using test::World;

DecideOptions quick() {
  DecideOptions options = DecideOptions::quick();
  options.commands.repeat = "kvscale decide MODEL --prompts p.jsonl";
  return options;
}

bool has_reason(const Verdict& verdict, const std::string& rule) {
  return std::ranges::any_of(verdict.reasons, [&](const Reason& r) { return r.rule == rule; });
}

std::vector<std::string> states(const Verdict& verdict) {
  std::vector<std::string> out;
  for (const TraceEntry& entry : verdict.state_trace) {
    if (out.empty() || out.back() != entry.state) out.push_back(entry.state);
  }
  return out;
}

const ArmTable& last_table(const Verdict& verdict, const std::string& arm) {
  const auto found =
      std::find_if(verdict.tables.rbegin(), verdict.tables.rend(),
                   [&](const ArmTable& t) { return t.arm == arm && t.reference == kControlArm; });
  EXPECT_NE(found, verdict.tables.rend()) << arm;
  return *found;
}

TEST(Decide, BenignKeepsScaleOne) {
  for (const DecideOptions& options : {quick(), DecideOptions::standard()}) {
    SimulatedStudy study(World{});
    const Verdict verdict = study.run(options);
    EXPECT_EQ(name(verdict.outcome), "KEEP_SCALE_ONE") << verdict_json(verdict);
    EXPECT_EQ(verdict.layout, "fp8_scale1");
    EXPECT_EQ(verdict.exit_code, kExitAccept);
    EXPECT_EQ(verdict.launch.at("vllm").flags, "--kv-cache-dtype fp8");
    EXPECT_EQ(states(verdict), (std::vector<std::string>{"PREFLIGHT", "AA", "SCREEN", "SYSTEMS"}));
    EXPECT_NEAR(verdict.capacity_gain, 2.0, 1e-3);
    // What a KEEP must show: a row per bucket, overall, validity.
    const ArmTable& table = last_table(verdict, "fp8_scale1");
    EXPECT_EQ(table.block, "E1");
    EXPECT_EQ(table.buckets.size(), 3u);
    EXPECT_TRUE(table.is_pass);
  }
}

TEST(Decide, QuickVerdictNamesItsMarginAndTheStandardCommand) {
  SimulatedStudy study(World{});
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(verdict.options.preset, "quick");
  ASSERT_EQ(verdict.next.size(), 1u);
  EXPECT_EQ(verdict.next[0].command, "kvscale decide MODEL --prompts p.jsonl --margin standard");
  EXPECT_NE(verdict.sentence.find("5 points in every bucket"), std::string::npos);
}

TEST(Decide, ClippingCalibratesPerTensor) {
  SimulatedStudy study(test::clipping_world());
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(name(verdict.outcome), "CALIBRATE_PER_TENSOR") << verdict_json(verdict);
  EXPECT_EQ(verdict.layout, "fp8_tensor");
  EXPECT_TRUE(has_reason(verdict, "BETTER"));
  EXPECT_EQ(last_table(verdict, "fp8_tensor").block, "E2");
  EXPECT_NE(verdict.launch.at("vllm").notes.at(0).find("checkpoint"), std::string::npos);
}

TEST(Decide, HeadDispersionTakesAScalePerHead) {
  SimulatedStudy study(test::head_dispersion_world());
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(name(verdict.outcome), "STATIC_PER_HEAD") << verdict_json(verdict);
  EXPECT_TRUE(has_reason(verdict, "HEAD_DISPERSION"));
  EXPECT_EQ(last_table(verdict, "fp8_head").block, "E3");
}

TEST(Decide, TokenDispersionTakesAScalePerToken) {
  SimulatedStudy study(test::token_dispersion_world());
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(name(verdict.outcome), "DYNAMIC_PER_TOKEN_HEAD") << verdict_json(verdict);
  EXPECT_TRUE(has_reason(verdict, "TOKEN_DRIFT"));
  EXPECT_EQ(verdict.launch.at("vllm").flags, "--kv-cache-dtype fp8_per_token_head");
  EXPECT_NEAR(verdict.capacity_gain, 4.0 * 64 / (2 * 64 + 8), 1e-9);
}

TEST(Decide, OffsetLayerStaysInBf16) {
  SimulatedStudy study(test::offset_world(2));
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(name(verdict.outcome), "SELECTIVE_BF16") << verdict_json(verdict);
  EXPECT_EQ(verdict.layout, "fp8_scale1/bf16=2");
  EXPECT_EQ(verdict.bf16_layers, std::vector<int>{2});
  EXPECT_TRUE(has_reason(verdict, "OFFSET"));
  EXPECT_TRUE(has_reason(verdict, "LAYER_CONCENTRATION"));
  EXPECT_EQ(verdict.launch.at("vllm").flags, "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 2");
  EXPECT_EQ(last_table(verdict, verdict.layout).block, "E3");
  EXPECT_NEAR(verdict.capacity_gain, 12.0 / 7, 1e-3);
}

TEST(Decide, WhatTheTargetCannotLaunchIsNotAccepted) {
  for (const char* target : {"sglang:default", "tensorrt-llm:pytorch", "edge-llm:plugin"}) {
    DecideOptions options = quick();
    options.target = target;
    World world = test::offset_world(2);
    world.supported = [&](const std::string& layout) { return support(layout, target).supported; };
    SimulatedStudy study(world);
    const Verdict verdict = study.run(options);
    EXPECT_EQ(name(verdict.outcome), "REJECT_FP8") << target << verdict_json(verdict);
    EXPECT_EQ(verdict.sub_reason, "NOT_LAUNCHABLE") << target;
    EXPECT_TRUE(has_reason(verdict, "NOT_LAUNCHABLE")) << target;
    EXPECT_TRUE(study.records().arms.size() > 0) << "what would help is known all the same";
  }
}

TEST(Decide, OneSideOfALayerIsJudgedOnlyWhereItIsAskedFor) {
  // Keys alone are what breaks: V of the layer may stay FP8.
  World world = test::offset_world(2);
  SimulatedStudy study(world);
  const Verdict whole = study.run(quick());
  EXPECT_EQ(whole.layout, "fp8_scale1/bf16=2") << "vLLM has no flag for half a layer";
  const auto side = std::ranges::find(whole.reasons, "ONE_SIDE", &Reason::rule);
  ASSERT_NE(side, whole.reasons.end());
  EXPECT_EQ(side->record, "arm/fp8_scale1/bf16=2k");
  EXPECT_NE(side->text.find("99 % of the excess gone: enough, 1.846 times"), std::string::npos)
      << side->text;
  EXPECT_NE(side->text.find("one dtype"), std::string::npos) << side->text;
  // The layer, and that its keys suffice, from three ablation runs.
  EXPECT_EQ(study.records().arms.size(), 3u);

  DecideOptions options = quick();
  options.bf16_sides = true;
  const Verdict half = SimulatedStudy(world).run(options);
  EXPECT_EQ(half.layout, "fp8_scale1/bf16=2k");
  const LaunchLines& lines = half.launch.at("vllm");
  EXPECT_TRUE(lines.flags.empty()) << lines.flags;
  ASSERT_EQ(lines.notes.size(), 2u);
  EXPECT_NE(lines.notes[0].find("one dtype"), std::string::npos);
  EXPECT_NE(lines.notes[1].find("launchable is fp8_scale1/bf16=2,"), std::string::npos);
  EXPECT_NE(lines.notes[1].find("--kv-cache-dtype-skip-layers 2"), std::string::npos);

  // Where values matter too, one side is not enough.
  world.kld = [](const ArmSpec& arm) {
    if (!test::keeps(arm, 2)) return 1.0;
    return arm.bf16.front().v ? 0.01 : 0.3;
  };
  const Verdict both = SimulatedStudy(world).run(options);
  EXPECT_EQ(both.layout, "fp8_scale1/bf16=2");
  EXPECT_NE(std::ranges::find(both.reasons, "ONE_SIDE", &Reason::rule)->text.find("not enough"),
            std::string::npos);
}

/// Five layers of six with a window of 512 tokens, at 32,768 tokens.
World windowed_world() {
  World world;
  world.windows = {512, 512, 512, 512, 512, 0};
  world.buckets = {"8192", "16384", "32768"};
  return world;
}

bool keeps_windows(const ArmSpec& arm) {
  const auto is_windowed = [](const Bf16Side& side) { return side.layer < 5; };
  return std::ranges::count_if(arm.bf16, is_windowed) == 5;
}

TEST(Decide, LayersOfOneTypeStayInBf16) {
  World world = windowed_world();
  world.rates = [](const ArmSpec& arm, const std::string&) {
    return keeps_windows(arm) ? test::Rates{0.002, 0.002} : test::Rates{0.3, 0};
  };
  world.kld = [](const ArmSpec& arm) { return keeps_windows(arm) ? 0.01 : 1.0; };
  DecideOptions options = quick();
  const Verdict verdict = SimulatedStudy(world).run(options);
  EXPECT_EQ(verdict.layout, "fp8_scale1/bf16=0,1,2,3,4") << verdict_json(verdict);
  EXPECT_TRUE(has_reason(verdict, "LAYER_TYPE"));
  // 1 layer of 32,768 tokens and 5 of 512: almost all of the cache is still halved.
  EXPECT_GT(verdict.capacity_gain, 1.8);
  EXPECT_EQ(last_table(verdict, verdict.layout).block, "E3");
}

TEST(Decide, ALossThatSitsNowhereKeepsWhatTheCapacityAllows) {
  // Two layers of six are more than a quarter; with a third less capacity they are allowed.
  World world = test::diffuse_world();
  world.rates = [](const ArmSpec& arm, const std::string&) {
    return arm.bf16.size() >= 2 ? test::Rates{0.002, 0.002} : test::Rates{0.3, 0};
  };
  world.kld = [](const ArmSpec& arm) { return arm.bf16.size() >= 2 ? 0.01 : 1.0; };
  EXPECT_EQ(SimulatedStudy(world).run(quick()).sub_reason, "QUALITY_DIFFUSE");
  DecideOptions options = quick();
  options.capacity_gain_min = 1.45;
  const Verdict verdict = SimulatedStudy(world).run(options);
  EXPECT_EQ(verdict.bf16_layers.size(), 2u) << verdict_json(verdict);
  EXPECT_TRUE(has_reason(verdict, "DIFFUSE"));
  EXPECT_NEAR(verdict.capacity_gain, 1.5, 1e-3);
}

TEST(Decide, SelectiveTakesTheFirstBaseThatPasses) {
  // Layer 4 has an offset, and scale 1.0 clips in all other layers.
  World world = test::offset_world(4);
  world.rates = [](const ArmSpec& arm, const std::string&) {
    const bool breaks = !test::keeps(arm, 4) || arm.layout == ArmLayout::kFp8Scale1;
    return breaks ? test::Rates{0.3, 0} : test::Rates{0.002, 0.002};
  };
  world.kld = [](const ArmSpec& arm) { return test::keeps(arm, 4) ? 0.05 : 1.0; };
  SimulatedStudy study(world);
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(verdict.layout, "fp8_tensor/bf16=4") << verdict_json(verdict);
  EXPECT_FALSE(last_table(verdict, "fp8_scale1/bf16=4").is_pass);
}

TEST(Decide, OffsetsEverywhereReject) {
  SimulatedStudy study(test::offset_world(-1));
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8") << verdict_json(verdict);
  EXPECT_EQ(verdict.sub_reason, "QUALITY");
  EXPECT_EQ(verdict.exit_code, kExitReject);
  EXPECT_TRUE(verdict.layout.empty());
  EXPECT_TRUE(verdict.launch.empty());
}

TEST(Decide, ALossThatSitsNowhereRejects) {
  SimulatedStudy study(test::diffuse_world());
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(verdict.sub_reason, "QUALITY_DIFFUSE") << verdict_json(verdict);
  EXPECT_EQ(verdict.exit_code, kExitReject);
}

TEST(Decide, ExhaustiveTriesWhatNothingSuggests) {
  World world =
      test::broken_world([](const ArmSpec& arm) { return arm.layout != ArmLayout::kFp8TokenHead; });
  DecideOptions options = quick();
  EXPECT_EQ(SimulatedStudy(world).run(options).sub_reason, "QUALITY_DIFFUSE");
  options.exhaustive = true;
  EXPECT_EQ(SimulatedStudy(world).run(options).layout, "fp8_token_head");
}

TEST(Decide, NoLayoutThatRunsIsAFallback) {
  World world;
  world.supported = [](const std::string&) { return false; };
  SimulatedStudy study(world);
  const Verdict verdict = study.run(quick());
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8");
  EXPECT_EQ(verdict.sub_reason, "BACKEND_FALLBACK");
  EXPECT_EQ(study.asks().size(), 1u) << "nothing may be run for a backend that cannot serve it";
  EXPECT_EQ(std::ranges::count_if(verdict.reasons,
                                  [](const Reason& r) { return r.rule == "BACKEND_FALLBACK"; }),
            4);
}

TEST(Decide, AllocatedBytesOtherThanPlannedAreAFallback) {
  World world;
  world.capacity = [](CapacityRecord& record) { record.allocated_bytes = record.bf16_bytes; };
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_EQ(verdict.sub_reason, "BACKEND_FALLBACK");
  EXPECT_EQ(verdict.exit_code, kExitReject);
}

TEST(Decide, FewExamplesAreInsufficientAndTheNumberNeededIsEnough) {
  World world;
  world.documents = 10;
  world.questions = 4;
  SimulatedStudy study(world);
  DecideOptions options = quick();
  options.tasks_from_generators = true;
  const Verdict verdict = study.run(options);
  EXPECT_EQ(name(verdict.outcome), "INCONCLUSIVE");
  EXPECT_EQ(verdict.sub_reason, "INSUFFICIENT_SAMPLES");
  EXPECT_EQ(verdict.exit_code, kExitInconclusive);
  ASSERT_GT(verdict.n_required, 120);
  ASSERT_FALSE(verdict.next.empty());
  EXPECT_NE(verdict.next[0].command.find("--margin quick --documents "), std::string::npos);
  EXPECT_TRUE(verdict.next[0].command.ends_with(" --questions 4")) << verdict.next[0].command;

  World larger;
  larger.questions = 4;
  larger.documents = static_cast<int64_t>(std::ceil(verdict.n_required / 4));
  EXPECT_EQ(SimulatedStudy(larger).run(quick()).layout, "fp8_scale1");
}

TEST(Decide, PromptsWithAnswersAreWhatIsAskedForWhereTheyAreTheTasks) {
  World world;
  world.documents = 10;
  world.questions = 1;
  const Verdict verdict = SimulatedStudy(world).run(quick());
  ASSERT_EQ(verdict.sub_reason, "INSUFFICIENT_SAMPLES");
  const NextCommand& next = verdict.next.at(0);
  EXPECT_EQ(next.command, "kvscale decide MODEL --prompts p.jsonl --margin quick");
  EXPECT_NE(next.text.find("prompts with answers in each of the buckets"), std::string::npos);
}

TEST(Decide, AnswersWithLogitsThatAreNotFiniteAreAFaultOfTheArm) {
  SimulatedStudy study(World{});
  study.run(quick());
  for (ExampleRecord& record : study.records().examples) {
    if (record.arm == "fp8_scale1") record.finite = false;
  }
  const Step step = next_step(quick(), study.evidence());
  const std::string text = std::holds_alternative<Verdict>(step)
                               ? verdict_json(std::get<Verdict>(step))
                               : std::get<Ask>(step).arms.back();
  EXPECT_EQ(text.find("KEEP_SCALE_ONE"), std::string::npos) << "scale 1.0 is out";
}

TEST(Decide, FortyQuestionsUnderTheStandardMargin) {
  World world;
  world.documents = 40;
  world.questions = 1;
  const Verdict verdict = SimulatedStudy(world).run(DecideOptions::standard());
  EXPECT_EQ(verdict.sub_reason, "INSUFFICIENT_SAMPLES");
  EXPECT_GE(verdict.n_required, 800);
}

TEST(Decide, AnOrdinaryLossOfAPointStaysOpen) {
  World world;
  world.rates = [](const ArmSpec&, const std::string&) { return test::Rates{0.06, 0.03}; };
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_FALSE(is_accepting(verdict.outcome)) << verdict_json(verdict);
}

TEST(Decide, AControlThatDoesNotRepeatIsNoise) {
  World world;
  world.repeat = {0.06, 0.06};
  const Verdict flips = SimulatedStudy(world).run(quick());
  EXPECT_EQ(flips.sub_reason, "HARNESS_NOISE");
  world.repeat = {0.04, 0.0};  // few flips, all of them losses
  DecideOptions all = quick();
  all.aa_documents = all.documents;
  const Verdict shift = SimulatedStudy(world).run(all);
  EXPECT_EQ(shift.sub_reason, "HARNESS_NOISE");
  world.repeat = {0.01, 0.01};
  EXPECT_EQ(SimulatedStudy(world).run(quick()).sub_reason, "");
}

TEST(Decide, BucketsAtTheFloorAreDroppedAndNoneLeftIsAVerdict) {
  World world;
  world.control = 0.02;
  world.chance = 0.25;
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_EQ(verdict.sub_reason, "CONTROL_FLOOR");
  EXPECT_EQ(verdict.dropped_buckets, world.buckets);
}

TEST(Decide, ABucketWithHardlyAnyTrafficIsDropped) {
  World world;
  DecideOptions options = quick();
  for (const std::string& bucket : world.buckets) options.traffic[bucket] = 50;
  options.traffic[world.buckets.back()] = 0.5;
  const Verdict verdict = SimulatedStudy(world).run(options);
  EXPECT_EQ(verdict.dropped_buckets, std::vector<std::string>{world.buckets.back()});
  EXPECT_EQ(verdict.outcome, Outcome::kKeepScaleOne) << verdict.sentence;
  EXPECT_EQ(verdict.tables.at(0).buckets.size(), world.buckets.size() - 1);
}

TEST(Decide, ADroppedBucketIsNotAskedForAgain) {
  SimulatedStudy study(World{});
  const DecideOptions options = quick();
  for (Step step = next_step(options, study.evidence()); std::holds_alternative<Ask>(step);
       step = next_step(options, study.evidence())) {
    const Ask ask = std::get<Ask>(step);
    study.answer(ask);
    if (ask.kind == AskKind::kControlTwice) {
      for (ExampleRecord& record : study.records().examples) {
        if (record.bucket == "2048") record.score = 0;
      }
    }
    if (ask.block == "E1") {
      EXPECT_EQ(ask.buckets, (std::vector<std::string>{"512", "1024"}));
    }
  }
  const Verdict verdict = std::get<Verdict>(next_step(options, study.evidence()));
  EXPECT_EQ(verdict.dropped_buckets, std::vector<std::string>{"2048"});
  EXPECT_EQ(last_table(verdict, "fp8_scale1").buckets.size(), 2u);
  EXPECT_TRUE(has_reason(verdict, "INSENSITIVE"));
  ASSERT_FALSE(verdict.notices.empty());
}

TEST(Decide, AShiftThatDoesNotRepeatIsKept) {
  // Scale 1.0 loses on E1 only: records of E1 are spoilt after the fact.
  SimulatedStudy study(World{});
  const DecideOptions options = quick();
  Step step = next_step(options, study.evidence());
  while (std::holds_alternative<Ask>(step)) {
    const Ask ask = std::get<Ask>(step);
    study.answer(ask);
    if (ask.block == "E1") {
      int64_t i = 0;
      for (ExampleRecord& record : study.records().examples) {
        if (record.block == "E1" && record.arm == "fp8_scale1" && i++ % 5 == 0) record.score = 0;
      }
    }
    step = next_step(options, study.evidence());
  }
  const Verdict verdict = std::get<Verdict>(step);
  EXPECT_EQ(verdict.layout, "fp8_scale1");
  EXPECT_TRUE(has_reason(verdict, "SHIFT_NOT_REPLICATED"));
  EXPECT_EQ(last_table(verdict, "fp8_scale1").block, "E2");
}

/// Turns the answers of one arm on one block and bucket into losses: every `step`-th of `count`.
void spoil(Records& records, const std::string& block, const std::string& arm,
           const std::string& bucket, int step, int count) {
  int seen = 0;
  for (ExampleRecord& record : records.examples) {
    if (record.block != block || record.arm != arm || record.bucket != bucket) continue;
    if (count > 0 && seen++ % step == 0) {
      record.score = 0;
      --count;
    }
  }
}

TEST(Decide, HarmlessScalesThatGainNothingAreUnproven) {
  // Scale 1.0 loses on E1. On E2 it loses 6 of 200 in a bucket, which is open, calibrated scales
  // lose 3 others, which passes; 6 against 3 shows no gain.
  World world;
  world.control = 1;
  world.rates = [](const ArmSpec&, const std::string&) { return test::Rates{0, 0}; };
  SimulatedStudy study(world);
  Step step = next_step(quick(), study.evidence());
  while (std::holds_alternative<Ask>(step)) {
    const Ask ask = std::get<Ask>(step);
    study.answer(ask);
    if (ask.block == "E1") {
      for (const std::string& b : world.buckets)
        spoil(study.records(), "E1", "fp8_scale1", b, 5, 40);
    }
    if (ask.block == "E2" && ask.kind == AskKind::kQuality) {
      spoil(study.records(), "E2", "fp8_scale1", "512", 4, 6);
      spoil(study.records(), "E2", "fp8_tensor", "512", 51, 3);
    }
    step = next_step(quick(), study.evidence());
  }
  const Verdict verdict = std::get<Verdict>(step);
  EXPECT_EQ(verdict.sub_reason, "CALIBRATION_GAIN_UNPROVEN") << verdict_json(verdict);
  EXPECT_GT(verdict.n_required, 200);
  EXPECT_EQ(verdict.exit_code, kExitInconclusive);
  EXPECT_FALSE(verdict.next.empty());
}

TEST(Decide, ACalibrationThatIsTooShortIsRefused) {
  World world = test::clipping_world();
  world.calibrated_tokens = 1024;
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_EQ(verdict.sub_reason, "CALIBRATION_SET");
  // Generated documents may end a little below their target, and the question is not calibrated on.
  world.calibrated_tokens = 1944;  // 2048 * 0.98 - 64 = 1943.04
  EXPECT_EQ(SimulatedStudy(world).run(quick()).layout, "fp8_tensor");
}

TEST(Decide, FaultyLogitsPutOneLayoutOut) {
  World world;
  world.is_faulty = [](const ArmSpec& arm) { return arm.layout == ArmLayout::kFp8Scale1; };
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_EQ(verdict.layout, "fp8_tensor") << verdict_json(verdict);
  EXPECT_TRUE(has_reason(verdict, "NUMERIC_FAULT"));

  world.is_faulty = [](const ArmSpec& arm) { return arm.layout != ArmLayout::kBf16; };
  const Verdict rejected = SimulatedStudy(world).run(quick());
  EXPECT_EQ(name(rejected.outcome), "REJECT_FP8") << verdict_json(rejected);

  world.is_faulty = [](const ArmSpec& arm) { return arm.layout == ArmLayout::kBf16; };
  EXPECT_EQ(SimulatedStudy(world).run(quick()).sub_reason, "NUMERIC_FAULT");
}

TEST(Decide, TheFirstLayoutThatRunsTakesScaleOnesPlace) {
  World world;
  world.supported = [](const std::string& layout) { return layout == "fp8_token_head"; };
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_EQ(name(verdict.outcome), "DYNAMIC_PER_TOKEN_HEAD");

  world.supported = [](const std::string& layout) { return layout == "fp8_tensor"; };
  SimulatedStudy tensor(world);
  EXPECT_EQ(tensor.run(quick()).layout, "fp8_tensor");
  EXPECT_TRUE(std::ranges::any_of(
      tensor.asks(), [](const Ask& ask) { return ask.kind == AskKind::kCalibration; }));
}

TEST(Decide, SmallHeadsGainTooLittleByInlineScales) {
  World world = test::token_dispersion_world();
  world.head_dim = 16;  // 64 bytes become 40: 1.6 times the tokens
  const Verdict verdict = SimulatedStudy(world).run(quick());
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8") << verdict_json(verdict);
  EXPECT_EQ(verdict.sub_reason, "NO_SYSTEMS_GAIN: CAPACITY");
}

TEST(Decide, ProductionNumericsArePartOfEveryArm) {
  DecideOptions options = quick();
  options.math = Math::kFp8;
  options.rounding = Rounding::kTruncate;
  SimulatedStudy study(test::token_dispersion_world());
  const Verdict verdict = study.run(options);
  EXPECT_EQ(verdict.layout, "fp8_token_head/round=truncate")
      << "no engine reads inline scales with an FP8 query";
  const auto asked = [&](const std::string& arm) {
    return std::ranges::any_of(study.asks(), [&](const Ask& ask) {
      return std::ranges::find(ask.arms, arm) != ask.arms.end();
    });
  };
  EXPECT_TRUE(asked("fp8_scale1/math=fp8/round=truncate"));
  EXPECT_FALSE(asked("fp8_scale1"));
}

TEST(Decide, GeneratedTasksAreSaid) {
  DecideOptions options = quick();
  options.tasks_from_generators = true;
  const Verdict verdict = SimulatedStudy(World{}).run(options);
  EXPECT_TRUE(verdict.tasks_from_generators);
  EXPECT_TRUE(std::ranges::any_of(verdict.notices, [](const std::string& notice) {
    return notice.find("generated tasks") != std::string::npos;
  }));
}

// What reads with other numerics than were measured is named with the verdict.
TEST(Decide, NumericsOtherThanTheEnginesAreSaid) {
  const auto has_notice = [](const DecideOptions& options) {
    const Verdict verdict = SimulatedStudy(World{}).run(options);
    return std::ranges::any_of(verdict.notices, [](const std::string& notice) {
      return notice.find("math=bf16") != std::string::npos;
    });
  };
  DecideOptions same = quick(), other = quick();
  same.target = other.target = "vllm:flash_attn3";
  same.math = Math::kFp8;
  EXPECT_TRUE(has_notice(other));
  EXPECT_FALSE(has_notice(same));
}

TEST(Decide, PartialScoresGoThroughTheSameStates) {
  World world = test::clipping_world();
  world.fractions = true;
  EXPECT_EQ(SimulatedStudy(world).run(quick()).layout, "fp8_tensor");
  World benign;
  benign.fractions = true;
  EXPECT_EQ(SimulatedStudy(benign).run(quick()).layout, "fp8_scale1");
}

// Property (a): whatever the truth, an accepted arm passed on a block that did not select it.
TEST(DecideProperties, NoAcceptWithoutAPassOnABlockThatDidNotSelect) {
  int accepted = 0, rejected = 0, open = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SplitMix64 rng(seed);
    const auto uniform = [&] { return static_cast<double>(rng.next() >> 11) * 0x1p-53; };
    World world;
    world.seed = seed;
    std::array<double, 5> loss{};
    for (double& one : loss) one = uniform() < 0.5 ? 0.002 : 0.12 * uniform();
    const int repaired = static_cast<int>(rng.next() % 6);
    world.rates = [=](const ArmSpec& arm, const std::string& bucket) {
      const double base = loss[static_cast<size_t>(arm.layout)];
      const double scale = test::keeps(arm, repaired) ? 0.05 : bucket == "2048" ? 1.5 : 1.0;
      return test::Rates{base * scale, 0.002};
    };
    world.kld = [=](const ArmSpec& arm) { return test::keeps(arm, repaired) ? 0.01 : 0.5; };
    world.ranges = [=](const ArmSpec& arm, RangeRecord& range) {
      if (seed % 3 == 0 && range.side == "k" && range.layer == repaired) range.noise_mean = 0.8;
      if (seed % 3 == 1 && arm.layout == ArmLayout::kFp8Tensor) range.sqnr_db_heads[0] = 20;
    };
    const Verdict verdict = SimulatedStudy(world).run(quick());
    accepted += is_accepting(verdict.outcome);
    rejected += verdict.outcome == Outcome::kRejectFp8;
    open += verdict.outcome == Outcome::kInconclusive;
    EXPECT_EQ(verdict.exit_code, is_accepting(verdict.outcome)            ? kExitAccept
                                 : verdict.outcome == Outcome::kRejectFp8 ? kExitReject
                                                                          : kExitInconclusive);
    if (!is_accepting(verdict.outcome)) continue;
    const ArmTable& table = last_table(verdict, verdict.layout);
    EXPECT_TRUE(table.is_pass) << seed;
    const std::string& block = table.block;
    switch (verdict.outcome) {
      case Outcome::kKeepScaleOne:
        EXPECT_TRUE(block == "E1" || block == "E2");
        break;
      case Outcome::kCalibratePerTensor:
        EXPECT_EQ(block, "E2");
        break;
      default:
        EXPECT_EQ(block, "E3");
    }
  }
  // The sweep must visit all three ends, or it shows nothing.
  EXPECT_GE(accepted, 15);
  EXPECT_GE(rejected, 5);
  EXPECT_GE(open, 3);
}

// Property (d).
TEST(DecideProperties, IdenticalRecordsGiveIdenticalBytesInAnyOrder) {
  for (const World& world :
       {World{}, test::offset_world(1), test::head_dispersion_world(), test::offset_world(-1)}) {
    SimulatedStudy study(world);
    const std::string first = verdict_json(study.run(quick()));
    EXPECT_EQ(first, verdict_json(std::get<Verdict>(next_step(quick(), study.evidence()))));
    std::mt19937 rng(7);
    std::shuffle(study.records().examples.begin(), study.records().examples.end(), rng);
    std::shuffle(study.records().arms.begin(), study.records().arms.end(), rng);
    EXPECT_EQ(first, verdict_json(std::get<Verdict>(next_step(quick(), study.evidence()))));
  }
}

// Property (e): the better arm never loses to the worse one, whichever is called the control.
TEST(DecideProperties, SwappingControlAndCandidateNeverAcceptsTheWorse) {
  for (const double loss : {0.08, 0.12, 0.3}) {
    World world;
    world.rates = [=](const ArmSpec&, const std::string&) { return test::Rates{loss, 0}; };
    SimulatedStudy study(world);
    EXPECT_FALSE(is_accepting(study.run(quick()).outcome)) << loss;
    // The same records with the arms' names exchanged: now the candidate is the better one.
    for (ExampleRecord& record : study.records().examples) {
      if (record.block != "E1") continue;
      record.arm = record.arm == kControlArm ? "fp8_scale1" : std::string(kControlArm);
    }
    Step step = next_step(quick(), study.evidence());
    while (std::holds_alternative<Ask>(step)) {
      study.answer(std::get<Ask>(step));
      step = next_step(quick(), study.evidence());
    }
    const Verdict& swapped = std::get<Verdict>(step);
    EXPECT_EQ(swapped.layout, "fp8_scale1");
    for (const BucketRow& row : last_table(swapped, "fp8_scale1").buckets) EXPECT_GT(row.diff, 0);
  }
}

}  // namespace
}  // namespace kv
