// What a stopped, spoilt or unpaired run leads to.

#include <gtest/gtest.h>

#include "decide/decide.h"
#include "decide/pairs.h"
#include "kvscale/error.h"
#include "tests/decide/simulated_study.h"
#include "tests/decide/worlds.h"

namespace kv {
namespace {

using test::SimulatedStudy;
using test::World;

/// Answers asks until one of this kind and block, which is returned unanswered.
Ask run_until(SimulatedStudy& study, AskKind kind, const std::string& block) {
  for (int i = 0; i < 40; ++i) {
    const Step step = next_step(DecideOptions::quick(), study.evidence());
    if (std::holds_alternative<Verdict>(step)) break;
    const Ask ask = std::get<Ask>(step);
    if (ask.kind == kind && ask.block == block) return ask;
    study.answer(ask);
  }
  ADD_FAILURE() << "never asked for " << name(kind) << " on " << block;
  return {};
}

TEST(DecideEvidence, AsksComeInTheOrderOfTheStates) {
  SimulatedStudy study(test::offset_world(2));
  study.run(DecideOptions::quick());
  std::vector<std::string> seen;
  for (const Ask& ask : study.asks()) {
    seen.push_back(ask.state + " " + std::string(name(ask.kind)) + " " + ask.block);
  }
  EXPECT_EQ(seen,
            (std::vector<std::string>{
                "PREFLIGHT support ", "AA control_twice AA", "SCREEN quality E1",
                "CALIBRATE calibration CAL", "CALIBRATE quality E2", "LOCALISE ranges E2",
                "LOCALISE kld E2", "LOCALISE kld E2", "TRY quality E3", "SYSTEMS capacity "}));
  EXPECT_EQ(study.asks()[6].arms, (std::vector<std::string>{"fp8_scale1", "fp8_scale1/bf16=2"}));
  EXPECT_EQ(study.asks()[7].arms, std::vector<std::string>{"fp8_scale1/bf16=2k"});
  EXPECT_EQ(study.asks()[8].arms,
            (std::vector<std::string>{"bf16", "fp8_tensor", "fp8_scale1/bf16=2"}));
  for (const Ask& ask : study.asks()) EXPECT_FALSE(ask.reason.empty());
}

TEST(DecideEvidence, AnUnfinishedBlockIsAskedForAgain) {
  SimulatedStudy study(World{});
  const Ask ask = run_until(study, AskKind::kQuality, "E1");
  study.answer(ask);
  // As after a crash: the last arm's last examples are missing, and sizes say so.
  auto& examples = study.records().examples;
  const std::vector<ExampleRecord> all = examples;
  Evidence evidence = study.evidence();
  for (const char* bucket : {"512", "1024", "2048"}) {
    evidence.sizes.push_back({"AA", bucket, 1, 40, 10});
    evidence.sizes.push_back({"E1", bucket, 1, 200, 50});
  }
  EXPECT_FALSE(std::holds_alternative<Ask>(next_step(DecideOptions::quick(), evidence)) &&
               std::get<Ask>(next_step(DecideOptions::quick(), evidence)).block == "E1");
  for (const size_t lost : {1u, 100u, 599u, 600u, 700u}) {
    examples.assign(all.begin(), all.end() - static_cast<std::ptrdiff_t>(lost));
    const Step step = next_step(DecideOptions::quick(), evidence);
    ASSERT_TRUE(std::holds_alternative<Ask>(step)) << lost;
    EXPECT_EQ(std::get<Ask>(step).block, "E1");
    EXPECT_EQ(std::get<Ask>(step).arms, ask.arms);
  }
}

TEST(DecideEvidence, UnpairedArmsAreAnError) {
  SimulatedStudy study(World{});
  study.answer(run_until(study, AskKind::kQuality, "E1"));
  auto& examples = study.records().examples;
  const std::vector<ExampleRecord> all = examples;
  const auto expect_error = [&](const char* what) {
    Evidence evidence = study.evidence();
    evidence.sizes.clear();  // or what is missing would be asked for
    EXPECT_THROW(next_step(DecideOptions::quick(), evidence), ValueError) << what;
    examples = all;
  };
  examples.pop_back();
  expect_error("one example less");
  examples.back().example_id += "x";
  expect_error("another example");
  examples.back().document = "other";
  expect_error("another document");
  examples.push_back(examples.back());
  expect_error("an example twice");
  examples.back().score = 1.5;
  expect_error("a score above 1");
  examples.back().score = std::nan("");
  expect_error("a score that is no number");
  EXPECT_NO_THROW(next_step(DecideOptions::quick(), study.evidence()));
}

TEST(DecideEvidence, FailedFactsEndTheRunOrPutALayoutOut) {
  for (const char* rule :
       {"CONTROL_BROKEN", "PROVENANCE", "NOT_DISJOINT", "LENGTH_MISMATCH", "SCALES_NOT_APPLIED"}) {
    SimulatedStudy study(World{});
    Evidence evidence = study.evidence();
    evidence.facts = {{"PROVENANCE", true, "", "", ""}, {rule, false, "", "fact/1", "found other"}};
    const Verdict verdict = std::get<Verdict>(next_step(DecideOptions::quick(), evidence));
    EXPECT_EQ(verdict.sub_reason, rule);
    EXPECT_EQ(verdict.exit_code, kExitInconclusive);
  }
  SimulatedStudy study(World{});
  run_until(study, AskKind::kControlTwice, "AA");
  Evidence evidence = study.evidence();
  for (const char* layout : {"fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head"}) {
    evidence.facts.push_back({"BACKEND_FALLBACK", false, layout, "probe/1", "another kernel ran"});
  }
  const Verdict verdict = std::get<Verdict>(next_step(DecideOptions::quick(), evidence));
  EXPECT_EQ(verdict.sub_reason, "BACKEND_FALLBACK");
}

TEST(DecideEvidence, AnUnknownKernelIsNoAccept) {
  SimulatedStudy study(World{});
  run_until(study, AskKind::kCapacity, "");
  for (ExampleRecord& record : study.records().examples) {
    if (record.arm == "fp8_scale1") record.kernel.clear();
  }
  const Verdict verdict = std::get<Verdict>(next_step(DecideOptions::quick(), study.evidence()));
  EXPECT_EQ(verdict.sub_reason, "KERNEL_UNVERIFIED");
}

TEST(DecideEvidence, OneDocumentABucketIsTooFewBeforeAnythingElse) {
  World world;
  world.documents = 1;
  SimulatedStudy study(world);
  const Verdict verdict = study.run(DecideOptions::quick());
  EXPECT_EQ(verdict.sub_reason, "INSUFFICIENT_SAMPLES");
  EXPECT_EQ(study.asks().size(), 2u);
}

TEST(DecideEvidence, OptionsOutsideTheirRangeAreErrors) {
  SimulatedStudy study(World{});
  const auto fails = [&](auto change) {
    DecideOptions options = DecideOptions::quick();
    change(options);
    EXPECT_THROW(next_step(options, study.evidence()), ValueError);
  };
  fails([](DecideOptions& o) { o.margin.bucket = 0; });
  fails([](DecideOptions& o) { o.margin.overall = 1; });
  fails([](DecideOptions& o) { o.alpha_accept = 0.5; });
  fails([](DecideOptions& o) { o.alpha_shift = std::nan(""); });
  fails([](DecideOptions& o) { o.capacity_gain_min = 0.5; });
  fails([](DecideOptions& o) { o.min_documents = 1; });
  fails([](DecideOptions& o) { o.traffic = {{"512", 0.0}}; });
  EXPECT_THROW(DecideOptions::named("loose"), ValueError);
  const Evidence no_layers{study.records(), {}, {}, {}};
  EXPECT_THROW(next_step(DecideOptions::quick(), no_layers), ValueError);
}

TEST(DecidePairs, BucketsAreOrderedByLength) {
  EXPECT_TRUE(bucket_before("512", "1024"));
  EXPECT_FALSE(bucket_before("1024", "512"));
  EXPECT_TRUE(bucket_before("2048", "over 2048"));
  EXPECT_FALSE(bucket_before("512", "512"));
}

}  // namespace
}  // namespace kv
