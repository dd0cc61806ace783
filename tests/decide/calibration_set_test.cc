// What a calibration set must be like, as a function of records and in the states that ask for it.

#include "decide/calibration_set.h"

#include <gtest/gtest.h>

#include "tests/decide/worlds.h"

namespace kv {
namespace {

using test::SimulatedStudy;
using test::World;

AmaxRecord context_of(const std::string& block, const std::string& id, const std::string& bucket,
                      int64_t tokens, float amax = 1, const std::string& task = "kv_recall") {
  AmaxRecord out;
  out.record_id = "amax/" + block + "/" + id;
  out.block = block;
  out.example_id = id;
  out.task = task;
  out.bucket = bucket;
  out.tokens = tokens;
  out.kv_heads = 2;
  for (int side = 0; side < 12; ++side) out.amax.insert(out.amax.end(), {amax, amax / 2});
  return out;
}

/// counts[i] contexts of about 2^i * 500 tokens each, spread within 1 %.
std::vector<AmaxRecord> contexts_of(const std::vector<int>& counts, double stretch = 1) {
  std::vector<AmaxRecord> out;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    for (int i = 0; i < counts[bucket]; ++i) {
      const double tokens = (500 << bucket) * stretch * (1 + 0.01 * i / counts[bucket]);
      out.push_back(
          context_of("E1", "x", std::to_string(512 << bucket), static_cast<int64_t>(tokens)));
    }
  }
  return out;
}

AmaxRecords pointers_to(const std::vector<AmaxRecord>& records) {
  AmaxRecords out;
  for (const AmaxRecord& one : records) out.push_back(&one);
  return out;
}

std::string mismatch(const std::vector<AmaxRecord>& calibrated,
                     const std::vector<AmaxRecord>& evaluated) {
  return calibration_mismatch(pointers_to(calibrated), pointers_to(evaluated));
}

TEST(CalibrationSet, HasTheSharesOfTheEvaluationsBuckets) {
  const std::vector<AmaxRecord> evaluated = contexts_of({400, 400, 400, 400});
  EXPECT_EQ(mismatch(contexts_of({128, 128, 128, 128}), evaluated), "");
  EXPECT_EQ(mismatch(contexts_of({141, 115, 128, 128}), evaluated), "") << "0.025";
  const std::string refused = mismatch(contexts_of({300, 150, 50, 12}), evaluated);  // method TV-13
  EXPECT_NE(refused.find("shares of lengths in 512 calibration examples differ from those of 1600 "
                         "evaluated contexts by a total variation of 0.379 (at most 0.05)"),
            std::string::npos)
      << refused;
  // Two of each are as near to two fifths and three fifths as four examples come.
  EXPECT_EQ(mismatch(contexts_of({2, 2}), contexts_of({20, 30})), "");
  EXPECT_NE(mismatch(contexts_of({4, 2}), contexts_of({20, 30})), "");
  EXPECT_EQ(mismatch({}, evaluated), "");
  EXPECT_EQ(mismatch(evaluated, {}), "");
}

TEST(CalibrationSet, HasItsLengthsWithinTheBuckets) {
  const std::vector<AmaxRecord> evaluated = contexts_of({100});
  EXPECT_EQ(mismatch(contexts_of({30}), evaluated), "");
  const std::string shorter = mismatch(contexts_of({30}, 0.6), evaluated);
  EXPECT_NE(shorter.find("Kolmogorov-Smirnov 1.000 on log2 tokens (less than 0.283)"),
            std::string::npos)
      << shorter;
}

TEST(CalibrationSet, HasItsTasksAndMayHaveMoreThanThose) {
  std::vector<AmaxRecord> evaluated = contexts_of({60}), calibrated = contexts_of({30});
  for (size_t i = 0; i < evaluated.size(); i += 2) evaluated[i].task = "copy_span";
  EXPECT_NE(mismatch(calibrated, evaluated).find("TASK_MISMATCH: task_mix: the shares of tasks"),
            std::string::npos);
  for (size_t i = 0; i < calibrated.size(); i += 2) calibrated[i].task = "copy_span";
  EXPECT_EQ(mismatch(calibrated, evaluated), "");
  for (int i = 0; i < 40; ++i) calibrated.push_back(context_of("CAL", "own", "512", 20, 1, ""));
  EXPECT_EQ(mismatch(calibrated, evaluated), "") << "prompts that no task asks about";
  EXPECT_NE(mismatch({context_of("CAL", "own", "512", 500, 1, "")}, evaluated), "");
}

TEST(CalibrationSet, HasItsLanguages) {
  std::vector<AmaxRecord> evaluated = contexts_of({60}), calibrated = contexts_of({30});
  for (size_t i = 0; i < evaluated.size(); ++i) evaluated[i].language = i % 3 == 0 ? "de" : "en";
  for (AmaxRecord& one : calibrated) one.language = "en";
  EXPECT_EQ(mismatch(calibrated, evaluated).find("LANGUAGE_MISMATCH: languages: the shares of"), 0u)
      << mismatch(calibrated, evaluated);
  for (size_t i = 0; i < calibrated.size(); i += 3) calibrated[i].language = "de";
  EXPECT_EQ(mismatch(calibrated, evaluated), "");
}

/// Records of a calibration and of what the control stored on a block.
void add_contexts(SimulatedStudy& study, const std::string& block, int documents, float amax) {
  for (const char* bucket : {"512", "1024", "2048"}) {
    for (int d = 0; d < documents; ++d) {
      const std::string id = block + "/" + bucket + "/d" + std::to_string(d) + "/q0";
      study.records().amaxes.push_back(
          context_of(block, id, bucket, std::stoll(bucket) - 10 * (d % 3), amax));
    }
  }
}

bool has_rule(const Verdict& verdict, const std::string& rule) {
  return std::ranges::any_of(verdict.reasons, [&](const Reason& r) { return r.rule == rule; });
}

bool has_notice(const Verdict& verdict, const std::string& begin) {
  return std::ranges::any_of(verdict.notices,
                             [&](const std::string& n) { return n.starts_with(begin); });
}

TEST(CalibrationSetStates, AnotherMixOfLengthsIsInconclusive) {
  SimulatedStudy study(test::clipping_world());
  add_contexts(study, "E1", 50, 1);
  add_contexts(study, "CAL", 6, 1);
  for (int d = 0; d < 9; ++d) {
    study.records().amaxes.push_back(
        context_of("CAL", "more" + std::to_string(d), "512", 500 - 10 * (d % 3)));
  }
  const Verdict verdict = study.run(DecideOptions::quick());
  EXPECT_EQ(verdict.sub_reason, "CALIBRATION_SET");
  EXPECT_NE(verdict.sentence.find("LENGTH_MISMATCH"), std::string::npos) << verdict.sentence;
}

TEST(CalibrationSetStates, AMatchingSetThatRepresentsTheEvaluationSaysNothing) {
  SimulatedStudy study(test::clipping_world());
  add_contexts(study, "E1", 50, 1);
  add_contexts(study, "E2", 50, 1);
  add_contexts(study, "CAL", 6, 1);
  const Verdict verdict = study.run(DecideOptions::quick());
  EXPECT_EQ(verdict.outcome, Outcome::kCalibratePerTensor) << verdict.sentence;
  EXPECT_FALSE(has_rule(verdict, "CAL_NOT_REPRESENTATIVE"));
  EXPECT_FALSE(has_notice(verdict, "whether the calibration set represents"));
}

TEST(CalibrationSetStates, WithoutRecordsTheVerdictSaysThatItWasNotTested) {
  SimulatedStudy study(test::clipping_world());
  const Verdict verdict = study.run(DecideOptions::quick());
  EXPECT_EQ(verdict.outcome, Outcome::kCalibratePerTensor);
  EXPECT_TRUE(has_notice(verdict, "whether the calibration set represents"));
}

TEST(CalibrationSetStates, DriftIsNamedAndLeadsToScalesPerToken) {
  World world = test::token_dispersion_world();
  world.ranges = [](const ArmSpec&, RangeRecord&) {};  // nothing clips: only amax tells
  SimulatedStudy blind(world), seeing(world);
  EXPECT_EQ(blind.run(DecideOptions::quick()).sub_reason, "QUALITY_DIFFUSE");
  add_contexts(seeing, "E1", 50, 1);
  add_contexts(seeing, "CAL", 6, 1);
  add_contexts(seeing, "E2", 50, 1.5);
  const Verdict verdict = seeing.run(DecideOptions::quick());
  EXPECT_EQ(verdict.outcome, Outcome::kDynamicPerTokenHead) << verdict.sentence;
  EXPECT_TRUE(has_rule(verdict, "CAL_NOT_REPRESENTATIVE"));
  EXPECT_TRUE(has_rule(verdict, "TOKEN_DRIFT"));
  EXPECT_TRUE(has_notice(verdict,
                         "CAL_NOT_REPRESENTATIVE: more contexts exceed the amax of 18 "
                         "calibration examples"));
}

}  // namespace
}  // namespace kv
