// What a server says against what was asked of it.

#include "study/served_check.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "kvscale/error.h"
#include "study/parallel_jobs.h"

namespace kv {
namespace {

// SmolLM2-135M: 30 layers, 3 KV heads of 64.
std::vector<LayerGeometry> smollm2() { return std::vector<LayerGeometry>(30, {3, 64, 0}); }

/// vLLM 0.32.0, CPU build, with 2 GiB for the cache, as it was seen.
ServerFacts seen(const std::string& dtype, int64_t tokens) {
  ServerFacts facts;
  facts.engine = "vllm";
  facts.version = "0.32.0";
  facts.cache_dtype = dtype;
  facts.block_size = 128;
  facts.cache_bytes = int64_t{2} << 30;
  facts.cache_tokens = tokens;
  return facts;
}

std::string rules(const std::vector<PreflightFact>& facts) {
  std::string out;
  for (const PreflightFact& fact : facts) {
    out += (out.empty() ? "" : " ") + fact.rule;
    EXPECT_FALSE(fact.holds);
  }
  return out;
}

std::string rules_of(const char* arm, const ServerFacts& facts) {
  return rules(contradictions(smollm2(), ArmSpec::parse(arm), facts));
}

TEST(ServedCheck, TheArithmeticOfPlanIsTheEngines) {
  const ServerFacts facts = seen("auto", 0);
  const auto tokens = [&](const char* arm) {
    return expected_tokens(smollm2(), ArmSpec::parse(arm), facts);
  };
  EXPECT_EQ(tokens("bf16"), 93'184);
  EXPECT_EQ(tokens("fp8_scale1"), 186'368);
  EXPECT_EQ(tokens("fp8_tensor"), 186'368);
  EXPECT_EQ(tokens("fp8_token_head"), 175'360);
}

TEST(ServedCheck, WhatIsServedAsAskedContradictsNothing) {
  EXPECT_EQ(rules_of("bf16", seen("auto", 93'184)), "");
  EXPECT_EQ(rules_of("bf16", seen("bfloat16", 93'184)), "");
  EXPECT_EQ(rules_of("fp8_scale1", seen("fp8", 186'368)), "");
  EXPECT_EQ(rules_of("fp8_scale1", seen("fp8_e4m3", 186'368 - 128)), "");  // a block set aside
  EXPECT_EQ(rules_of("fp8_tensor", seen("auto", 186'368)), "");
  EXPECT_EQ(rules_of("fp8_token_head", seen("fp8_per_token_head", 175'360)), "");
}

// A load balancer in front of two servers, one of which was started without the flag.
TEST(ServedCheck, AReplicaThatIsNotLikeTheOthersIsNamed) {
  std::vector<ServerFacts> replicas = {seen("fp8", 186'368), seen("auto", 93'184)};
  replicas[0].process = "1.5";
  replicas[1].process = "2.5";
  const ArmSpec arm = ArmSpec::parse("fp8_scale1");
  const auto found = contradictions_of_replicas(smollm2(), arm, replicas);
  EXPECT_EQ(rules(found), "BACKEND_FALLBACK");
  EXPECT_NE(found.at(0).text.find("as with 16-bit values"), std::string::npos) << found[0].text;
  EXPECT_NE(found[0].text.find("(one of 2 replicas, started at 2.5)"), std::string::npos);
  EXPECT_TRUE(contradictions_of_replicas(smollm2(), arm, {replicas[0], replicas[0]}).empty());
}

TEST(ServedCheck, InlineScalesThatTakeNoBytesAreNotThere) {
  const auto found = contradictions(smollm2(), ArmSpec::parse("fp8_token_head"),
                                    seen("fp8_per_token_head", 186'368));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rule, "BACKEND_FALLBACK");
  EXPECT_EQ(found[0].layout, "fp8_token_head");
  EXPECT_EQ(found[0].text,
            "fp8_token_head: 186368 tokens fit into 2147483648 bytes (11523 bytes a token) as with "
            "FP8 without inline scales; with fp8_token_head it would be 175360 tokens (12246 bytes "
            "a token)");
}

TEST(ServedCheck, ACacheOfSixteenBitsIsNoFp8Cache) {
  EXPECT_EQ(rules_of("fp8_scale1", seen("auto", 93'184)), "BACKEND_FALLBACK");
  EXPECT_EQ(rules_of("bf16", seen("auto", 186'368)), "CONTROL_BROKEN");
  EXPECT_EQ(rules_of("bf16", seen("fp8", 186'368)), "CONTROL_BROKEN CONTROL_BROKEN");
}

TEST(ServedCheck, TheDeclaredDtypeIsTheArms) {
  EXPECT_EQ(rules_of("fp8_scale1", seen("fp8_e5m2", 186'368)), "BACKEND_FALLBACK");
  EXPECT_EQ(rules_of("fp8_scale1", seen("bfloat16", 186'368)), "BACKEND_FALLBACK");
  EXPECT_EQ(rules_of("fp8_token_head", seen("fp8", 175'360)), "BACKEND_FALLBACK");
}

TEST(ServedCheck, LayersInBf16AreTheArms) {
  ServerFacts facts = seen("fp8", 0);
  facts.skip_layers = {"0"};
  EXPECT_EQ(rules_of("fp8_scale1/bf16=0", facts), "");
  EXPECT_EQ(rules_of("fp8_scale1", facts), "BACKEND_FALLBACK");
  EXPECT_EQ(rules_of("fp8_scale1/bf16=0,1", facts), "BACKEND_FALLBACK");
  facts.cache_tokens = expected_tokens(smollm2(), ArmSpec::parse("fp8_scale1/bf16=0"), facts);
  EXPECT_EQ(rules_of("fp8_scale1/bf16=0", facts), "");
}

TEST(ServedCheck, ALogThatFoundNoScalesIsBelieved) {
  ServerFacts facts = seen("fp8", 186'368);
  facts.says_scale_one = true;
  EXPECT_EQ(rules_of("fp8_scale1", facts), "");
  EXPECT_EQ(rules_of("fp8_tensor", facts), "SCALES_NOT_APPLIED");
}

TEST(ServedCheck, WhatABackendIsKnownToDoIsTold) {
  ServerFacts facts = seen("fp8", 186'368);
  facts.device = "CPU";
  EXPECT_EQ(rules_of("fp8_scale1", facts), "");
  EXPECT_EQ(rules_of("fp8_head", facts), "BACKEND_FALLBACK");
}

TEST(ServedCheck, WindowsAndUnknownMemorySayNothing) {
  ServerFacts facts = seen("auto", 93'184);
  facts.cache_bytes = 0;
  EXPECT_EQ(rules_of("fp8_scale1", facts), "");
  std::vector<LayerGeometry> windows = smollm2();
  windows[1].window = 512;
  EXPECT_EQ(expected_tokens(windows, ArmSpec{}, seen("auto", 93'184)), 0);
}

TEST(ServedCheck, AnotherNumberOfTokensThatNoFormatGivesIsNoContradiction) {
  // Several ranks, say: the engine counts what one of them holds.
  EXPECT_EQ(rules_of("fp8_scale1", seen("fp8", 400'000)), "");
}

ServedRecord probe_of(const char* arm, std::vector<float> logprobs) {
  ServedRecord out;
  out.arm = arm;
  out.logprobs = std::move(logprobs);
  return out;
}

TEST(ServedCheck, EqualBitsSayWhatIsNotThere) {
  const std::vector<float> a = {-1, -2}, b = {-1, -2.5}, c = {-1, -3};
  const std::vector<ServedRecord> served = {probe_of("bf16", a), probe_of("fp8_scale1", b),
                                            probe_of("fp8_tensor", c)};
  const auto found = [&](const char* arm, const std::vector<float>& logprobs) {
    return rules(contradictions(smollm2(), ArmSpec::parse(arm), probe_of(arm, logprobs), served));
  };
  EXPECT_EQ(found("fp8_scale1", b), "");
  EXPECT_EQ(found("fp8_scale1", a), "BACKEND_FALLBACK");
  EXPECT_EQ(found("fp8_tensor", c), "");
  EXPECT_EQ(found("fp8_tensor", b), "SCALES_NOT_APPLIED");
  EXPECT_EQ(found("fp8_head", c), "BACKEND_FALLBACK");
  EXPECT_EQ(found("fp8_head", {}), "");
}

TEST(ParallelJobs, AllAreDoneOnceOnTheCallingThread) {
  std::vector<int> done(500);
  std::atomic<int> worked{0};
  const auto caller = std::this_thread::get_id();
  Jobs jobs;
  jobs.count = done.size();
  jobs.workers = 5;
  jobs.work = [&](size_t) { ++worked; };
  jobs.done = [&](size_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++done[i];
  };
  jobs.check = jobs.stop = [] {};
  run_jobs(jobs);
  EXPECT_EQ(worked, 500);
  EXPECT_EQ(done, std::vector<int>(500, 1));
  jobs.count = 0;
  run_jobs(jobs);
}

TEST(ParallelJobs, AFailureEndsTheRestAndKeepsWhatWasFinished) {
  for (const int where : {0, 1, 2}) {
    std::atomic<size_t> worked{0};
    size_t done = 0, stops = 0;
    Jobs jobs;
    jobs.count = 100'000;
    jobs.workers = 3;
    std::promise<void> stopped;
    const std::shared_future<void> until_stopped = stopped.get_future().share();
    jobs.work = [&](size_t i) {
      if (where == 0 && i == 40) throw ValueError("work");
      if (i >= 5000) until_stopped.wait();  // jobs do not outrun what ends them
      ++worked;
    };
    jobs.done = [&](size_t i) {
      if (where == 1 && i == 40) throw ValueError("done");
      ++done;
    };
    jobs.check = [&] {
      if (where == 2 && done > 40) throw ValueError("check");
    };
    jobs.stop = [&] {
      ++stops;
      stopped.set_value();
    };
    EXPECT_THROW(run_jobs(jobs), ValueError) << where;
    EXPECT_LE(stops, 1u) << where;  // none when all have ended by themselves
    if (where != 1) {
      EXPECT_EQ(done, worked) << where;
    }
    EXPECT_LT(worked, 100'000u) << where;
  }
}

}  // namespace
}  // namespace kv
