// Drawing tokens: the right distribution, the same numbers for every arm.

#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "kvscale/error.h"
#include "stats/distributions.h"
#include "stats/splitmix64.h"
#include "tests/engine/harness.h"

namespace kv::engine_test {
namespace {

std::vector<float> some_logits(uint64_t seed, size_t n) {
  SplitMix64 random(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(6 * random.uniform() - 3);
  return out;
}

/// What TokenPicker should draw from, written down from the definition: sort all, add up, cut.
std::vector<double> expected_shares(const std::vector<float>& logits, const Sampling& sampling) {
  std::vector<double> p(logits.size());
  double total = 0;
  for (size_t v = 0; v < p.size(); ++v) {
    total += p[v] = std::exp(static_cast<double>(logits[v]) / sampling.temperature);
  }
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](size_t a, size_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
  std::vector<double> out(p.size());
  double held = 0;
  for (const size_t v : order) {
    if (held >= sampling.top_p * total) break;
    held += out[v] = p[v];
  }
  for (double& share : out) share /= held;
  return out;
}

TEST(Sampling, FollowsTheSoftmax) {
  constexpr int64_t kDraws = 20'000;
  for (const Sampling sampling :
       {Sampling{1, 1}, Sampling{0.6, 1}, Sampling{1, 0.9}, Sampling{2.5, 0.5}}) {
    SCOPED_TRACE(std::to_string(sampling.temperature) + " " + std::to_string(sampling.top_p));
    const std::vector<float> logits = some_logits(3, 40);
    const std::vector<double> shares = expected_shares(logits, sampling);
    std::vector<int64_t> drawn(logits.size());
    TokenPicker picker(sampling);
    // Half of them along one generation, half over many.
    for (int64_t i = 0; i < kDraws; ++i) {
      const bool is_long = i % 2 == 0;
      const uint64_t stream = sample_stream(1, "doc", "q", is_long ? 1 : i);
      ++drawn[static_cast<size_t>(picker.pick(logits, stream, is_long ? i : 3).token)];
    }
    double chi_square = 0, cells = 0, rare = 0, rare_drawn = 0;
    const auto add_cell = [&](double found, double expected) {
      chi_square += (found - expected) * (found - expected) / expected;
      ++cells;
    };
    for (size_t v = 0; v < drawn.size(); ++v) {
      const double expected = shares[v] * static_cast<double>(kDraws);
      const auto found = static_cast<double>(drawn[v]);
      if (expected == 0) {
        EXPECT_EQ(drawn[v], 0) << "token " << v << " is outside the nucleus";
      } else if (expected < 10) {  // too few for a cell of their own
        rare += expected;
        rare_drawn += found;
      } else {
        add_cell(found, expected);
      }
    }
    if (rare > 0) add_cell(rare_drawn, rare);
    EXPECT_GT(cells, 3);
    EXPECT_GT(chi_square_upper(chi_square, cells - 1), 1e-3);
    EXPECT_LT(chi_square_upper(chi_square, cells - 1), 1 - 1e-3) << "too even for chance";
  }
}

TEST(Sampling, OfEqualTokensTheNucleusTakesTheLowestIds) {
  const std::vector<float> logits(8, 1.5f);
  TokenPicker picker({1, 0.5});
  std::set<int32_t> seen;
  for (int64_t i = 0; i < 200; ++i) seen.insert(picker.pick(logits, 9, i).token);
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(TokenPicker({1, 1e-9}).pick(some_logits(4, 50), 1, 0).token,
            pick_greedy(some_logits(4, 50)).token);
}

/// Arms with the same logits draw the same tokens, whatever was drawn before and in between.
TEST(Sampling, HangsOnStreamPositionAndLogitsAlone) {
  const std::vector<float> logits = some_logits(5, 300), other = some_logits(6, 77);
  const Sampling sampling{0.9, 0.95};
  TokenPicker forwards(sampling), backwards(sampling);
  std::vector<int32_t> there, back;
  for (int64_t i = 0; i < 50; ++i) there.push_back(forwards.pick(logits, 42, i).token);
  for (int64_t i = 49; i >= 0; --i) {
    backwards.pick(other, 43, i);
    back.insert(back.begin(), backwards.pick(logits, 42, i).token);
  }
  EXPECT_EQ(there, back);
  EXPECT_GT(std::set<int32_t>(there.begin(), there.end()).size(), 10u);
}

TEST(Sampling, StreamsDifferBySeedDocumentQuestionAndSample) {
  std::set<uint64_t> streams;
  for (const uint64_t seed : {1, 2}) {
    for (const char* document : {"a", "b", ""}) {
      for (const char* question : {"a", "b", "ab"}) {
        for (const int64_t sample : {1, 2, 3}) {
          streams.insert(sample_stream(seed, document, question, sample));
        }
      }
    }
  }
  EXPECT_EQ(streams.size(), 2u * 3 * 3 * 3);
}

/// The margin is what it says: another token that gains less than it changes nothing, and the
/// second one takes over when it gains a little more.
TEST(Sampling, MarginIsTheLeastThatAnotherTokenLacks) {
  for (const Sampling sampling : {Sampling{}, Sampling{0.7, 1}, Sampling{1.6, 1}}) {
    TokenPicker picker(sampling);
    for (int64_t i = 0; i < 40; ++i) {
      std::vector<float> logits = some_logits(100 + static_cast<uint64_t>(i), 30);
      const Pick pick = picker.pick(logits, 8, i);
      int takeovers = 0;
      for (size_t v = 0; v < logits.size(); ++v) {
        if (static_cast<int32_t>(v) == pick.token) continue;
        const float before = logits[v];
        logits[v] = before + static_cast<float>(pick.margin - 1e-4);
        EXPECT_EQ(picker.pick(logits, 8, i).token, pick.token);
        logits[v] = before + static_cast<float>(pick.margin + 1e-4);
        takeovers += picker.pick(logits, 8, i).token == static_cast<int32_t>(v);
        logits[v] = before;
      }
      EXPECT_GE(takeovers, 1);
    }
  }
}

/// A small error of the logits rarely changes what is drawn: at most twice the total variation
/// between the two distributions, which for an error of up to e is at most e.
TEST(Sampling, NearlyEqualLogitsNearlyAlwaysDrawTheSame) {
  constexpr int kDraws = 4000;
  constexpr float kError = 0.02f;
  const std::vector<float> logits = some_logits(11, 500);
  std::vector<float> moved = logits;
  SplitMix64 random(12);
  for (float& x : moved) x += kError * static_cast<float>(2 * random.uniform() - 1);
  TokenPicker picker({1, 1});
  int differ = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    differ += picker.pick(logits, 13, i).token != picker.pick(moved, 13, i).token;
  }
  EXPECT_LE(differ, 2 * kError * kDraws);
  EXPECT_GT(differ, 0);
}

TEST(PickGreedy, IsArgmaxWithItsLead) {
  const Pick pick = pick_greedy(std::vector<float>{1, 4, -2, 3.5f, 4});
  EXPECT_EQ(pick.token, 1);
  EXPECT_EQ(pick.margin, 0);
  EXPECT_EQ(pick_greedy(std::vector<float>{1, 4, -2, 3.5f}).margin, 0.5);
  EXPECT_EQ(pick_greedy(std::vector<float>{-7}).token, 0);
  EXPECT_TRUE(std::isinf(pick_greedy(std::vector<float>{-7}).margin));
  EXPECT_EQ(pick_greedy({}).token, -1);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const std::vector<float> logits = {1, bad, 2};
    EXPECT_EQ(pick_greedy(logits).token, -1);
    EXPECT_EQ(TokenPicker({1, 0.5}).pick(logits, 1, 1).token, -1);
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> logits = some_logits(seed, 1 + seed % 9);
    EXPECT_EQ(pick_greedy(logits).token, argmax(logits));
  }
}

TEST(Sampling, RefusesNumbersOutsideTheirRange) {
  for (const Sampling bad :
       {Sampling{-1, 1}, Sampling{0.001, 1}, Sampling{101, 1}, Sampling{NAN, 1}, Sampling{1, 0},
        Sampling{1, 1.01}, Sampling{1, NAN}}) {
    EXPECT_THROW(TokenPicker{bad}, ValueError) << bad.temperature << " " << bad.top_p;
  }
  EXPECT_NO_THROW(TokenPicker({100, 1}));
}

/// The same samples for a sequence alone, among others, under another plan and beside another arm.
TEST(GenerateSampled, DoesNotHangOnTheBatch) {
  const std::vector<int32_t> prompt = some_tokens(80, 40);
  const Sampling sampling{1, 0.95};
  const auto sample = [&](const std::vector<std::string>& arms, BatchPlan plan) {
    Engine engine(tiny_model(), plan);
    std::vector<Sequence> sequences;
    std::vector<Sequence*> pointers;
    std::vector<uint64_t> streams;
    for (const std::string& arm : arms) {
      Sequence context = engine.start(add_arm(engine, arm, 64 * 8));
      run(engine, context, std::span(prompt).first(39));
      for (int64_t s = 1; s <= 2; ++s) {
        sequences.push_back(context.fork());
        streams.push_back(sample_stream(5, "d", "q", s));
      }
    }
    for (Sequence& sequence : sequences) pointers.push_back(&sequence);
    const std::vector<int32_t> first(sequences.size(), prompt.back());
    return engine.generate(pointers, first, 8, {}, sampling, streams);
  };
  const auto alone = sample({"bf16"}, {});
  EXPECT_NE(alone[0].tokens, alone[1].tokens);
  const auto among = sample({"fp8_head", "bf16", "fp8_scale1"}, {.rows_per_pass = 7});
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(alone[i].tokens, among[2 + i].tokens);
    EXPECT_EQ(alone[i].margins, among[2 + i].margins);
  }
  Engine engine(tiny_model());
  Sequence sequence = engine.start(add_arm(engine, "bf16", 64));
  Sequence* pointer = &sequence;
  EXPECT_THROW(engine.generate({&pointer, 1}, std::span(prompt).first(1), 1, {}, sampling),
               ValueError);
}

}  // namespace
}  // namespace kv::engine_test
