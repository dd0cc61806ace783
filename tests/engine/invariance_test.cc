// A sequence's logits are the same bits whatever else is in the batch, however its prefill is
// chunked and wherever its pages lie. Every arm is held to it. Most tests run all arms in one call,
// which the first two allow.

#include <gtest/gtest.h>

#include "tests/engine/harness.h"

namespace kv::engine_test {
namespace {

const std::vector<std::string> kArms = {"bf16",
                                        "fp8_scale1",
                                        "fp8_tensor",
                                        "fp8_head",
                                        "fp8_token_head",
                                        "fp8_scale1/bf16=0,3k,5v",
                                        "fp8_head/round=truncate"};

void expect_equal(const std::vector<Logits>& expected, const std::vector<Logits>& found) {
  ASSERT_EQ(expected.size(), kArms.size());
  ASSERT_EQ(found.size(), kArms.size());
  for (size_t i = 0; i < kArms.size(); ++i)
    EXPECT_EQ(difference(expected[i], found[i]), "") << kArms[i];
}

TEST(Invariance, AloneOrWithAllArmsInOneCall) {
  const std::vector<int32_t> tokens = some_tokens(2, 137);
  std::vector<Logits> alone;
  for (const std::string& arm : kArms) alone.push_back(run_alone(arm, tokens));
  expect_equal(alone, run_together(kArms, tokens));
  for (size_t i = 1; i < kArms.size(); ++i)
    EXPECT_NE(difference(alone[0], alone[i]), "") << kArms[i] << " stores nothing in FP8";
}

/// Sequences of 1, 64 and 200 tokens of every arm come before and after each arm's own.
TEST(Invariance, AmongOtherSequencesWithArmsInAnyOrder) {
  const std::vector<int32_t> tokens = some_tokens(9, 137);
  const std::vector<Logits> expected = run_together(kArms, tokens);
  for (const bool is_reversed : {false, true}) {
    Engine engine(tiny_model(), {.rows_per_pass = is_reversed ? 2048 : 300});
    std::vector<Sequence> sequences;
    std::vector<std::vector<int32_t>> prompts;
    std::vector<size_t> ours(kArms.size());
    for (size_t i = 0; i < kArms.size(); ++i) {
      const size_t which = is_reversed ? kArms.size() - 1 - i : i;
      const int arm = add_arm(engine, kArms[which], 1024);
      for (const int64_t length : {1, 64, 137, 200}) {
        if (length == 137) ours[which] = sequences.size();
        sequences.push_back(engine.start(arm));
        prompts.push_back(length == 137 ? tokens : some_tokens(30 + sequences.size(), length));
      }
    }
    std::vector<Feed> feeds;
    for (size_t i = 0; i < sequences.size(); ++i) feeds.push_back({&sequences[i], prompts[i]});
    std::vector<Logits> all = run(engine, feeds), found;
    for (const size_t i : ours) found.push_back(std::move(all[i]));
    expect_equal(expected, found);
  }
}

TEST(Invariance, ThreeTimesInOneEngine) {
  const std::vector<int32_t> tokens = some_tokens(10, 100);
  Engine engine(tiny_model());
  std::vector<int> arms;
  for (const std::string& arm : kArms) arms.push_back(add_arm(engine, arm, 3 * 128));
  std::vector<Logits> first;
  std::vector<Sequence> kept;
  kept.reserve(3 * kArms.size());
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<Feed> feeds;
    for (const int arm : arms) {
      kept.push_back(engine.start(arm));
      feeds.push_back({&kept.back(), tokens});
    }
    const std::vector<Logits> found = run(engine, feeds);
    if (repeat == 0) first = found;
    expect_equal(first, found);
  }
}

TEST(Invariance, InOnePassOrManyChunks) {
  const std::vector<int32_t> tokens = some_tokens(3, 137);
  const std::vector<Logits> whole = run_together(kArms, tokens, {.rows_per_pass = 7 * 137});
  for (const int64_t rows : {1, 7, 64, 136}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of each sequence per pass");
    expect_equal(whole, run_together(kArms, tokens, {.rows_per_pass = 7 * rows}));
  }
  for (const int64_t rows : {1, 7, 64, 512}) {
    EXPECT_EQ(difference(whole[4], run_alone(kArms[4], tokens, {.rows_per_pass = rows})), "")
        << rows << " rows per pass";
  }
}

TEST(Invariance, InBlocksOfAnySize) {
  const std::vector<int32_t> tokens = some_tokens(4, 137);
  const std::vector<Logits> expected = run_together(kArms, tokens);
  for (const int64_t block : {1, 61, 256}) {
    SCOPED_TRACE(std::to_string(block) + " tokens per block");
    expect_equal(expected, run_together(kArms, tokens, {.block_size = block}));
  }
}

/// Blocks come back from sequences that ended in another order than they were taken, so later
/// sequences get them shuffled.
TEST(Invariance, OverBlocksInAnyOrder) {
  const std::vector<int32_t> tokens = some_tokens(5, 137), others = some_tokens(6, 20);
  const std::vector<Logits> expected = run_together(kArms, tokens, {.block_size = 16});
  Engine engine(tiny_model(), {.block_size = 16, .rows_per_pass = 4096});
  std::vector<Sequence> sequences;
  for (const std::string& arm : kArms) {
    const int number = add_arm(engine, arm, 12 * 32);
    std::vector<std::optional<Sequence>> earlier;
    std::vector<Feed> feeds;
    for (int i = 0; i < 12; ++i) earlier.emplace_back(engine.start(number));
    for (auto& sequence : earlier) feeds.push_back({&*sequence, others});
    run(engine, feeds);
    for (const size_t i : {7, 2, 9, 4, 0}) earlier[i].reset();
    sequences.push_back(engine.start(number));
    // The rest end while the new sequence already has some of its blocks.
    run(engine, sequences.back(), std::span(tokens).first(50));
  }
  std::vector<Feed> feeds;
  for (Sequence& sequence : sequences) feeds.push_back({&sequence, std::span(tokens).subspan(50)});
  const std::vector<Logits> found = run(engine, feeds);
  for (size_t i = 0; i < kArms.size(); ++i)
    EXPECT_EQ(difference(std::span(expected[i]).last(found[i].size()), found[i]), "") << kArms[i];
}

TEST(Invariance, DecodedStepByStep) {
  const std::vector<int32_t> tokens = some_tokens(7, 80);
  const std::vector<Logits> prefilled = run_together(kArms, tokens);
  Engine engine(tiny_model());
  std::vector<Sequence> sequences;
  for (const std::string& arm : kArms) sequences.push_back(engine.start(add_arm(engine, arm, 128)));
  const auto feed_all = [&](std::span<const int32_t> next) {
    std::vector<Feed> feeds;
    for (Sequence& sequence : sequences) feeds.push_back({&sequence, next});
    return run(engine, feeds);
  };
  std::vector<Logits> stepped = feed_all(std::span(tokens).first(50));
  for (size_t t = 50; t < tokens.size(); ++t) {
    const std::vector<Logits> one = feed_all(std::span(tokens).subspan(t, 1));
    for (size_t i = 0; i < kArms.size(); ++i)
      stepped[i].insert(stepped[i].end(), one[i].begin(), one[i].end());
  }
  expect_equal(prefilled, stepped);
}

/// 100 tokens are a full block and a part of one: the forks share both and copy the second when
/// they write to it, and the one they came from goes on too.
TEST(Invariance, AfterForksThatGoTheirOwnWays) {
  constexpr size_t kForks = 3;
  const std::vector<int32_t> prefix = some_tokens(8, 100);
  Engine engine(tiny_model());
  std::vector<std::vector<int32_t>> tails;
  for (size_t i = 0; i <= kForks; ++i) tails.push_back(some_tokens(20 + i, 20));
  std::vector<std::vector<Logits>> together;  // [arms][sequences]
  for (const std::string& name : kArms) {
    const int arm = add_arm(engine, name, 64 * 8);
    std::vector<Sequence> sequences;
    sequences.push_back(engine.start(arm));
    run(engine, sequences[0], prefix);
    const int64_t free = engine.free_tokens(arm);
    for (size_t i = 0; i < kForks; ++i) sequences.push_back(sequences[0].fork());
    EXPECT_EQ(engine.free_tokens(arm), free) << "a fork takes no blocks";
    std::vector<Feed> feeds;
    for (size_t i = 0; i <= kForks; ++i) feeds.push_back({&sequences[i], tails[i]});
    together.push_back(run(engine, feeds));
    EXPECT_EQ(engine.free_tokens(arm), free - 64 * 3) << "the last holder writes to the original";
  }
  for (size_t i = 0; i <= kForks; ++i) {
    std::vector<int32_t> all = prefix;
    all.insert(all.end(), tails[i].begin(), tails[i].end());
    const std::vector<Logits> alone = run_together(kArms, all);
    for (size_t arm = 0; arm < kArms.size(); ++arm) {
      const Logits& found = together[arm][i];
      EXPECT_EQ(difference(std::span(alone[arm]).last(found.size()), found), "")
          << kArms[arm] << ", fork " << i;
    }
  }
}

/// Greedy decoding of several sequences of several arms picks what scoring its own output says.
TEST(Generate, AgreesWithScoringWhatItWrote) {
  constexpr int64_t kNew = 24;
  Engine engine(tiny_model());
  std::vector<Sequence> sequences;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int32_t> first;
  for (size_t i = 0; i < kArms.size(); ++i) {
    prompts.push_back(some_tokens(60 + i, 30 + 11 * static_cast<int64_t>(i)));
    sequences.push_back(engine.start(add_arm(engine, kArms[i], 192)));
    run(engine, sequences.back(), std::span(prompts[i]).first(prompts[i].size() - 1));
    first.push_back(prompts[i].back());
  }
  std::vector<Sequence*> pointers;
  for (Sequence& sequence : sequences) pointers.push_back(&sequence);
  const auto written = engine.generate(pointers, first, kNew, {});
  const auto vocab = static_cast<size_t>(tiny_model()->spec().vocab_size);
  for (size_t i = 0; i < kArms.size(); ++i) {
    SCOPED_TRACE(kArms[i]);
    const std::vector<int32_t>& tokens = written[i].tokens;
    ASSERT_EQ(std::ssize(tokens), kNew);
    EXPECT_EQ(written[i].end, Generation::End::kLength);
    std::vector<int32_t> all = prompts[i];
    all.insert(all.end(), tokens.begin(), tokens.end());
    const Logits scored = run_alone(kArms[i], all);
    for (size_t t = 0; t < tokens.size(); ++t) {
      const size_t row = prompts[i].size() - 1 + t;
      EXPECT_EQ(argmax(std::span(scored).subspan(row * vocab, vocab)), tokens[t]) << "token " << t;
    }
  }
}

TEST(Generate, EndsAtAStopIdWhichIsNotPartOfTheAnswer) {
  const std::vector<int32_t> prompt = some_tokens(70, 50);
  Engine engine(tiny_model());
  Sequence read = engine.start(add_arm(engine, "bf16", 64 * 6));
  run(engine, read, std::span(prompt).first(49));
  const auto generate = [&](int64_t count, std::vector<int32_t> stop_ids) {
    Sequence sequence = read.fork();
    Sequence* pointer = &sequence;
    return engine.generate({&pointer, 1}, std::span(prompt).last(1), count, stop_ids).front();
  };
  const Generation unbounded = generate(20, {});
  EXPECT_EQ(unbounded.end, Generation::End::kLength);
  const std::vector<int32_t>& free = unbounded.tokens;
  ASSERT_EQ(free.size(), 20u);
  EXPECT_TRUE(generate(0, {}).tokens.empty());
  for (const size_t end : {0, 5, 19}) {
    const auto first = std::ranges::find(free, free[end]);
    const Generation stopped = generate(20, {1023, free[end]});
    EXPECT_EQ(stopped.tokens, std::vector<int32_t>(free.begin(), first));
    EXPECT_EQ(stopped.end, Generation::End::kStopId);
  }
}

}  // namespace
}  // namespace kv::engine_test
