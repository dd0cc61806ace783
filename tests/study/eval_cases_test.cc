// What others met when they measured quality: one test each, numbered as in docs/cases.md.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "decide/logit_alarm.h"
#include "evaluate/generation.h"
#include "evaluate/scorers.h"
#include "stats/splitmix64.h"
#include "study/calibration_pass.h"
#include "study/capacity.h"
#include "study/continuation_pass.h"
#include "study/forced_pass.h"
#include "study/logit_pass.h"
#include "tests/study/plants.h"

namespace kv::eval_cases_test {
namespace {

namespace fs = std::filesystem;

const std::shared_ptr<const Model>& tiny() {
  static const std::shared_ptr<const Model> model =
      Model::load(Checkpoint::open(fs::path(KV_SOURCE_DIR) / "models/tiny"));
  return model;
}

class EvalCases : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale-eval-cases-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Recall lines of the built-in model, over and over: something to go on with for long.
  static Prompt prompt(int times) {
    Prompt out;
    out.id = "p";
    const Tokenizer tokenizer = load_tokenizer(tiny()->checkpoint());
    std::string text;
    for (int i = 0; i < times; ++i) text += "kapidu: lemo\nrebi: tasu\nmonelu: vidi\n";
    out.tokens = tokenizer.encode(text);
    return out;
  }

  fs::path folder_;
  NoProgress silent_;
};

/// How the BF16 cache of a model goes on.
GenerationRecord continued(const std::shared_ptr<const Model>& model, const fs::path& file,
                           const Prompt& prompt, int64_t tokens) {
  NoProgress silent;
  fs::remove(file);
  RecordLog log(file);
  run_continuation_pass(model, {&prompt, 1}, {}, {"eval", {512}, tokens, {}, {}}, log, silent);
  return log.generations().front();
}

// A cache that breaks at one position, and not before: the generation goes the control's way up to
// there. Keys from that position on are stored as infinities.
TEST_F(EvalCases, Case72AFaultAtPosition128IsReportedThere) {
  const Prompt start = prompt(2);
  constexpr int64_t kFault = 128;
  // The last token of the prompt gives the first of the answer.
  const int64_t first_bad = std::ssize(start.tokens) - 1 + kFault - 1;
  const auto broken = tiny()->with_token_dispersion(
      TokenDispersion([&](int64_t position) { return position >= first_bad ? 127 : 0; }));
  const GenerationRecord control = continued(tiny(), folder_ / "a.jsonl", start, 140);
  ASSERT_EQ(control.ids.size(), 140u);
  GenerationRecord found = continued(broken, folder_ / "b.jsonl", start, 140);
  compare_with_control(found, control);
  EXPECT_TRUE(found.diverged);
  EXPECT_NEAR(static_cast<double>(found.fdi), kFault, 1);
}

TEST_F(EvalCases, Case72ALoopIsARunaway) {
  std::vector<int32_t> ids(100);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  EXPECT_FALSE(is_runaway(ids));
  for (size_t i = 20; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 7);
  EXPECT_TRUE(is_runaway(ids));
}

// ---- 122 and 66: only long generations show the damage ------------------------------------------

/// KLD of scale 1.0 over what follows the first `given` tokens, by their number.
std::vector<LogitRecord> followed(const std::shared_ptr<const Model>& model, const fs::path& file,
                                  const Prompt& text, int64_t given, int64_t tokens) {
  NoProgress silent;
  fs::remove(file);
  RecordLog log(file);
  Prompt part = text;
  part.tokens.resize(static_cast<size_t>(given + tokens));
  const ArmToRun arm{ArmSpec::parse("fp8_scale1"), std::nullopt};
  LogitPassOptions pass{kForcedBlock, forced_edges(tokens), {}};
  pass.given = given;
  run_logit_pass(model, {&part, 1}, {&arm, 1}, pass, log, silent);
  std::vector<LogitRecord> out;
  std::ranges::copy_if(log.logits(), std::back_inserter(out),
                       [](const LogitRecord& record) { return record.arm != "bf16"; });
  return out;
}

// Every key after the prompt is 0.5 % larger than the one before: BF16 keeps that exactly (the
// factor's power of two is taken out again), codes with one scale clip.
TEST_F(EvalCases, Case122ABiasOfHalfAPercentAStepShowsInTheLongBucketOnly) {
  constexpr int64_t kGiven = 20, kTokens = 1024;
  Prompt text;  // of nothing that could be learned, so that all buckets are alike without the bias
  text.id = "p";
  SplitMix64 random(122);
  while (std::ssize(text.tokens) < kGiven + kTokens)
    text.tokens.push_back(static_cast<int32_t>(10 + random.below(400)));
  const auto biased = tiny()->with_token_dispersion(TokenDispersion([](int64_t position) {
    const auto steps = static_cast<double>(position - kGiven);
    return static_cast<int>(std::max(0.0, steps) * std::log2(1.005));
  }));
  const std::vector<LogitRecord> plain = followed(tiny(), folder_ / "a", text, kGiven, kTokens);
  const std::vector<LogitRecord> found = followed(biased, folder_ / "b", text, kGiven, kTokens);
  ASSERT_EQ(plain.size(), 3u);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].bucket, "+64");
  EXPECT_EQ(found[0].n, 64);
  EXPECT_EQ(found[0].kld, plain[0].kld) << "nothing has happened yet";
  EXPECT_EQ(found[2].bucket, "+1024");
  EXPECT_EQ(found[2].n, kTokens - 256);
  EXPECT_GT(found[2].kld, 1.5 * plain[2].kld);
  const std::vector<std::string> alarms = logit_alarms(found, 0);
  ASSERT_EQ(alarms.size(), 1u);
  EXPECT_NE(alarms[0].find("worst in bucket +1024"), std::string::npos) << alarms[0];
}

TEST_F(EvalCases, AForcedGenerationFeedsAllArmsWhatTheControlWrote) {
  constexpr int64_t kTokens = 12;
  const Prompt start = prompt(1);
  RecordLog log(folder_ / "records.jsonl");
  const ArmToRun arm{ArmSpec::parse("fp8_scale1"), std::nullopt};
  const ForcedOptions options{{4, kTokens}, kTokens, {}, 0, {}};
  run_forced_pass(tiny(), {&start, 1}, {&arm, 1}, options, log, silent_);
  const size_t records = log.size();
  ASSERT_EQ(log.logits().size(), 4u);
  EXPECT_EQ(log.logits()[3].n, kTokens - 4);
  // What the control wrote is what it is surest of.
  const Prompt written = [&] {
    Prompt out = start;
    const GenerationRecord own = continued(tiny(), folder_ / "a.jsonl", start, kTokens);
    out.tokens.insert(out.tokens.end(), own.ids.begin(), own.ids.end());
    return out;
  }();
  ASSERT_EQ(std::ssize(written.tokens), std::ssize(start.tokens) + kTokens) << "no stop id came";
  const auto fed =
      followed(tiny(), folder_ / "b.jsonl", written, std::ssize(start.tokens), kTokens);
  ASSERT_EQ(fed.size(), 1u);
  EXPECT_NEAR(fed[0].kld, log.logits()[1].kld + log.logits()[3].kld, 1e-9);
  EXPECT_NEAR(fed[0].nll_ctrl, log.logits()[1].nll_ctrl + log.logits()[3].nll_ctrl, 1e-9);
  run_forced_pass(tiny(), {&start, 1}, {&arm, 1}, options, log, silent_);
  EXPECT_EQ(log.size(), records) << "what is there is not done again";
  ForcedOptions long_one = options;
  long_one.tokens = tiny()->spec().max_positions - std::ssize(start.tokens) + 1;
  EXPECT_THROW(run_forced_pass(tiny(), {&start, 1}, {&arm, 1}, long_one, log, silent_), ValueError);
}

// ---- 125: the first token is what breaks --------------------------------------------------------

// The first key lies beyond what codes with scale 1.0 hold, the others do not.
TEST_F(EvalCases, Case125FirstTokensInBf16AndKeysInBf16RepairASinkAndAreRanked) {
  const Prompt text = prompt(2);
  const auto sink = tiny()->with_token_dispersion(
      TokenDispersion([](int64_t position) { return position == 0 ? 10 : 0; }));
  std::string all_keys;
  for (int64_t l = 0; l < tiny()->spec().num_layers; ++l)
    all_keys += std::to_string(l) + (l + 1 < tiny()->spec().num_layers ? "k," : "k");
  const std::vector<std::string> names = {"fp8_scale1", "fp8_scale1/sink=4",
                                          "fp8_scale1/bf16=" + all_keys};
  const auto klds = [&](const std::shared_ptr<const Model>& model) {
    fs::remove(folder_ / "records.jsonl");
    RecordLog log(folder_ / "records.jsonl");
    std::vector<ArmToRun> arms;
    for (const std::string& name : names) arms.push_back({ArmSpec::parse(name), std::nullopt});
    run_logit_pass(model, {&text, 1}, arms, {"eval", {4096}, {}}, log, silent_);
    std::vector<double> out;
    for (const std::string& name : names) out.push_back(summarize_arm(log, "eval", name).kld);
    return out;
  };
  const std::vector<double> plain = klds(tiny()), planted = klds(sink);
  EXPECT_GT(planted[0], 10 * plain[0]) << "the plant breaks scale 1.0";
  EXPECT_NEAR(planted[1], plain[1], 0.05 * plain[1]) << "its first token is not stored in codes";
  EXPECT_LT(planted[2], planted[0] / 10);
  const auto bytes = [&](const std::string& arm) {
    return capacity_of(ArmSpec::parse(arm), *tiny(), 1024).arm_bytes;
  };
  const int64_t token = (bytes("fp8_scale1/sink=5") - bytes("fp8_scale1/sink=4"));
  EXPECT_EQ(bytes("fp8_scale1/sink=4"), bytes("fp8_scale1") + 4 * token);
  EXPECT_EQ(token * 1024, bytes("fp8_scale1") - 2 * 4 * tiny()->spec().num_layers)
      << "a token's codes, once more";
}

// Scales a thousand times too small clip every value: a metric that does not move does not see the
// cache.
TEST_F(EvalCases, Case114EveryMetricSeesACacheThatClips) {
  const Prompt text = prompt(1);
  const Calibration right = calibrate(tiny(), {&text, 1}, {}, {}, silent_);
  Calibration small = right;
  for (float& amax : small.amax) amax /= 1000;
  for (const bool is_per_head : {false, true}) {
    const std::string layout = is_per_head ? "fp8_head" : "fp8_tensor";
    const auto summary_with = [&](const Calibration& calibration) {
      fs::remove(folder_ / "records.jsonl");
      RecordLog log(folder_ / "records.jsonl");
      const std::vector<ArmToRun> arms = {
          {ArmSpec::parse(layout), calibration.scales(is_per_head)}};
      run_logit_pass(tiny(), {&text, 1}, arms, {"eval", {4096}, {}}, log, silent_);
      const std::vector<LogitRecord>& all = log.logits();
      return summarize(std::span(all).last(1));
    };
    const LogitSummary good = summary_with(right), ruined = summary_with(small);
    EXPECT_GT(ruined.kld.mean, 100 * good.kld.mean) << layout;
    EXPECT_GT(ruined.ln_ppl_ratio.mean, 0.5) << layout;
    EXPECT_LT(ruined.same_top, good.same_top - 0.3) << layout;
    EXPECT_LT(ruined.same_sampled, good.same_sampled / 5) << layout;
    EXPECT_GT(ruined.rms_dp, 10 * good.rms_dp) << layout;
    EXPECT_GT(ruined.kld_quantiles[5], 100 * good.kld_quantiles[5]) << layout;
    EXPECT_NE(logit_alarm(ruined, 0), "") << layout;
  }
}

// ---- 124: fluent text over a wrecked distribution -----------------------------------------------

/// 1,000 positions, of which 251 have another top token; perplexity stays.
LogitSummary wrecked() {
  LogitRecord record;
  record.document = "d";
  for (int i = 0; i < 1000; ++i) {
    // Two tokens change places at the top where they were nearly even.
    const bool is_swapped = i % 4 == 0 || i == 1;
    const float control[] = {1.0f, 0.8f, -2.0f};
    const float candidate[] = {is_swapped ? 0.8f : 1.0f, is_swapped ? 1.0f : 0.8f, -2.0f};
    RowMetrics row;
    compare_rows(control, candidate, 3, 2, row);
    add_row(record, row);
  }
  return summarize({&record, 1});
}

TEST(EvalCasesLogits, Case124EqualTopTokensAreLookedAtBesidePerplexity) {
  const LogitSummary summary = wrecked();
  EXPECT_NEAR(summary.same_top, 0.749, 1e-12);
  EXPECT_NEAR(summary.ln_ppl_ratio.mean, 0, 1e-9);
  EXPECT_LT(summary.kld.mean, 0.05);
  EXPECT_NE(logit_alarm(summary, 0).find("74.9 % of the top tokens are the control's (below 98 %)"),
            std::string::npos)
      << logit_alarm(summary, 0);
}

TEST(EvalCasesLogits, TheAlarmKnowsTheFloorTheTailAndWhatIsNotFinite) {
  LogitSummary summary;
  summary.n = 1000;
  summary.same_top = 0.99;
  summary.kld.mean = 0.006;
  EXPECT_NE(logit_alarm(summary, 0).find("KLD 0.006 nats (above 0.005)"), std::string::npos);
  EXPECT_EQ(logit_alarm(summary, 0.001), "") << "the control's repeat differs nearly as much";
  summary.kld_quantiles.back() = 1.5;
  EXPECT_NE(logit_alarm(summary, 0.001).find("beyond 1.5 nats"), std::string::npos);
  summary = {};
  EXPECT_EQ(logit_alarm(summary, 0), "") << "nothing was measured";
  summary.non_finite = 3;
  EXPECT_NE(logit_alarm(summary, 0).find("3 positions with logits that are not finite"),
            std::string::npos);
}

}  // namespace
}  // namespace kv::eval_cases_test
