// What the arms do to a model: where they must equal the control, where they must not, and what is
// told about them.

#include <gtest/gtest.h>

#include <set>

#include "tests/engine/harness.h"
#include "tests/model/golden.h"

namespace kv::engine_test {
namespace {

const std::vector<std::string> kFp8Arms = {"fp8_scale1", "fp8_tensor", "fp8_head",
                                           "fp8_token_head"};

TEST(Arms, WithAllLayersInBf16AreTheControlBitForBit) {
  const std::vector<int32_t> tokens = some_tokens(100, 100);
  for (const std::string& arm : kFp8Arms) {
    const std::vector<Logits> found =
        run_together({"bf16", arm + "/bf16=0,1,2,3,4,5", arm + "/bf16=0,1,2,3,4,5k",
                      arm + "/bf16=0,1,2,3,4,5v", arm},
                     tokens, {.rows_per_pass = 500});
    EXPECT_EQ(difference(found[0], found[1]), "") << arm;
    for (const size_t other : {2, 3, 4}) EXPECT_NE(difference(found[0], found[other]), "") << arm;
  }
}

TEST(Arms, FirstTokensInBf16AreTheControlsBitForBit) {
  const std::vector<int32_t> tokens = some_tokens(103, 90);
  constexpr size_t kSink = 4;
  const std::vector<Logits> found =
      run_together({"bf16", "fp8_scale1/sink=90", "fp8_scale1/sink=4/bf16=0,1,2,3,4,5",
                    "fp8_scale1/sink=4", "fp8_scale1/sink=4/bf16=0k,1k,2k,3k,4k,5k", "fp8_scale1"},
                   tokens, {.rows_per_pass = 23});  // chunks that begin behind the sink too
  EXPECT_EQ(difference(found[0], found[1]), "");
  EXPECT_EQ(difference(found[0], found[2]), "");
  const size_t vocab = found[0].size() / tokens.size();
  for (const size_t arm : {3, 4}) {
    const auto rows = [&](size_t a, size_t first, size_t count) {
      return std::span(found[a]).subspan(first * vocab, count * vocab);
    };
    EXPECT_EQ(difference(rows(0, 0, kSink), rows(arm, 0, kSink)), "");
    // What a token's keys and values are changes what it attends to at once.
    EXPECT_NE(difference(rows(0, kSink, 1), rows(arm, kSink, 1)), "");
    EXPECT_NE(difference(found[arm], found[5]), "");
  }
}

// A sink's pages have 16 bits: what they hold must be what codes give back.
TEST(Arms, EmulatedCodesGiveWhatCodesGive) {
  const std::vector<int32_t> tokens = some_tokens(104, 90);
  Engine engine(tiny_model());
  engine.add_arm(ArmSpec{}, std::nullopt, 128, 0, StoredValues::kE4m3);
  Sequence sequence = engine.start(0);
  const Logits emulated = run(engine, sequence, tokens);
  const Logits control = run_alone("bf16", tokens), codes = run_alone("fp8_scale1", tokens);
  // The same values in another kernel, which may add in another order.
  EXPECT_LT(rms_distance(emulated, codes), 0.1 * rms_distance(control, codes));
}

TEST(Arms, LayersBeforeTheFirstStoredInFp8AreUntouched) {
  // The last position's keys and values of layer 5 are stored whatever layer 5 holds, so only an
  // observer can tell that layers 0 to 4 gave the same.
  class Keys : public AttentionObserver {
   public:
    void on_attention(const AttentionTap& tap) override {
      by_layer.emplace_back(tap.k, tap.k + tap.num_tokens * tap.num_kv_heads * tap.head_dim);
    }
    std::vector<std::vector<uint16_t>> by_layer;
  };
  const std::vector<int32_t> tokens = some_tokens(101, 70);
  const auto keys = [&](const std::string& arm) {
    Engine engine(tiny_model());
    Sequence sequence = engine.start(add_arm(engine, arm, 128));
    Keys seen;
    const Request request{&sequence, tokens, -1, &seen};
    engine.run({&request, 1});
    return seen.by_layer;
  };
  const auto control = keys("bf16"), late = keys("fp8_scale1/bf16=0,1,2,3");
  ASSERT_EQ(control.size(), 6u);
  for (size_t layer = 0; layer <= 4; ++layer) EXPECT_EQ(control[layer], late[layer]) << layer;
  EXPECT_NE(control[5], late[5]) << "layer 4 was stored in FP8";
}

TEST(Arms, ThatNeedNoScalesIgnoreThoseTheyAreGiven) {
  const std::vector<int32_t> tokens = some_tokens(102, 90);
  const std::pair<const char*, const char*> arms[] = {
      {"bf16", "none: stored as BF16"},
      {"fp8_scale1", "scale 1.0 (none supplied)"},
      {"fp8_token_head", "inline, per token and KV head"}};
  for (const auto& [arm, source] : arms) {
    Engine engine(tiny_model());
    engine.add_arm(ArmSpec::parse(arm), tiny_scales(true), 128);
    Sequence sequence = engine.start(0);
    EXPECT_EQ(difference(run_alone(arm, tokens), run(engine, sequence, tokens)), "") << arm;
    EXPECT_EQ(engine.facts(0).scale_source, source);
  }
}

Logits run_with(const std::string& arm, const ScaleTable& scales, std::span<const int32_t> tokens,
                std::vector<StoreCounts>* counts = nullptr) {
  Engine engine(tiny_model());
  engine.add_arm(ArmSpec::parse(arm), scales, std::ssize(tokens));
  Sequence sequence = engine.start(0);
  Logits out = run(engine, sequence, tokens);
  if (counts != nullptr) *counts = engine.facts(0).counts;
  return out;
}

ScaleTable multiplied(const ScaleTable& table, float factor) {
  ScaleTable out(table.num_layers(), table.num_kv_heads(), table.source());
  for (int64_t layer = 0; layer < table.num_layers(); ++layer) {
    for (const Side side : kSides) {
      for (int64_t head = 0; head < table.num_kv_heads(); ++head)
        out.set(layer, side, head, table.heads(layer, side)[static_cast<size_t>(head)] * factor);
    }
  }
  return out;
}

/// Cross-entropy of the recall prompt's answer: what a damaged cache ruins.
double answer_loss(std::span<const float> logits, const golden::Prompt& prompt) {
  const auto vocab = static_cast<size_t>(tiny_model()->spec().vocab_size);
  const auto last = logits.last(vocab);
  double sum = 0;
  for (const float x : last) sum += std::exp(double{x});
  return std::log(sum) - last[static_cast<size_t>(prompt.greedy[0].first)];
}

TEST(Arms, ScalesAThousandTimesTooSmallClipEverythingAndRuinTheAnswer) {
  const golden::Prompt prompt = golden::read("tiny").prompt("recall");
  for (const bool is_per_head : {false, true}) {
    const std::string arm = is_per_head ? "fp8_head" : "fp8_tensor";
    SCOPED_TRACE(arm);
    const ScaleTable scales = calibrate(tiny_model(), prompt.ids, is_per_head);
    std::vector<StoreCounts> right, clipped;
    const Logits good = run_with(arm, scales, prompt.ids, &right);
    const Logits ruined = run_with(arm, multiplied(scales, 1e-3f), prompt.ids, &clipped);
    // Later layers see other keys than in the calibration's BF16 run, some beyond its amax.
    EXPECT_EQ(right[0].saturated, 0);
    for (size_t layer = 0; layer < 6; ++layer) {
      EXPECT_LT(right[layer].saturated * 10000, right[layer].values) << layer;
      EXPECT_EQ(clipped[layer].values, right[layer].values) << layer;
      EXPECT_GT(clipped[layer].saturated * 10, clipped[layer].values * 9) << layer;
    }
    EXPECT_LT(answer_loss(good, prompt), 0.01);
    EXPECT_GT(answer_loss(ruined, prompt), 1.0);
  }
}

TEST(Arms, EqualScalesOfAllHeadsAreAScalePerTensor) {
  const std::vector<int32_t> tokens = some_tokens(103, 60);
  const ScaleTable ones(6, 2, "ones");
  const Logits at_one = run_with("fp8_tensor", ones, tokens);
  EXPECT_EQ(difference(at_one, run_alone("fp8_scale1", tokens)), "");
  const ScaleTable small = multiplied(ones, 0x1p-4f);
  const Logits at_small = run_with("fp8_tensor", small, tokens);
  EXPECT_EQ(difference(at_small, run_with("fp8_head", small, tokens)), "");
  EXPECT_NE(difference(at_small, at_one), "") << "below 2^-6 codes lose bits, scales move that";
}

/// Truncating keeps magnitudes small on one side, so the errors of a write do not cancel. Scales
/// are those of this text: clipping would hide the difference.
TEST(Arms, TruncatingWritesDifferAndCostMore) {
  const golden::Prompt prompt = golden::read("tiny").prompt("recall");
  const auto tokens = std::span(prompt.ids).first(300);
  const Logits control = run_alone("bf16", tokens);
  double nearest_sum = 0, truncated_sum = 0;
  for (const std::string& arm : kFp8Arms) {
    const ScaleTable scales = calibrate(tiny_model(), tokens, arm == "fp8_head");
    const Logits nearest = run_with(arm, scales, tokens);
    const Logits truncated = run_with(arm + "/round=truncate", scales, tokens);
    EXPECT_GT(rms_distance(truncated, nearest), 0) << arm;
    nearest_sum += rms_distance(nearest, control);
    truncated_sum += rms_distance(truncated, control);
  }
  // Truncation doubles the error of a stored value; what reaches the logits of one arm varies with
  // the values, the sum over the arms less so.
  EXPECT_GT(truncated_sum, 1.2 * nearest_sum);
}

TEST(Arms, AllAnswerTheBuiltInModelsQuestion) {
  const golden::Prompt prompt = golden::read("tiny").prompt("recall");
  std::vector<int32_t> answer;
  for (size_t i = 0; i < 5; ++i) answer.push_back(prompt.greedy[i].first);
  std::vector<std::string> arms = kFp8Arms;
  arms.insert(arms.end(), {"bf16", "fp8_head/round=truncate", "fp8_scale1/bf16=0,3k"});
  Engine engine(tiny_model(), {.rows_per_pass = 7 * 128});
  std::vector<Sequence> sequences;
  for (const std::string& arm : arms) sequences.push_back(engine.start(add_arm(engine, arm, 704)));
  std::vector<Request> requests;
  std::vector<Sequence*> pointers;
  const auto before = std::span(prompt.ids).first(prompt.ids.size() - 1);
  for (Sequence& sequence : sequences) {
    requests.push_back({&sequence, before, -1, nullptr});
    pointers.push_back(&sequence);
  }
  engine.run(requests);
  const std::vector<int32_t> last(arms.size(), prompt.ids.back());
  const auto written = engine.generate(pointers, last, 5, {});
  for (size_t i = 0; i < arms.size(); ++i) EXPECT_EQ(written[i].tokens, answer) << arms[i];
}

TEST(Arms, SplitKeysGiveAnotherOrderOfAdditionsAndNoMore) {
  const golden::Prompt prompt = golden::read("tiny").prompt("recall");
  const Logits whole = run_alone("bf16", prompt.ids);
  const Logits split = run_alone("bf16", prompt.ids, {.keys_per_split = 128});
  EXPECT_NE(difference(whole, split), "");
  EXPECT_EQ(difference(split,
                       run_alone("bf16", prompt.ids, {.rows_per_pass = 64, .keys_per_split = 128})),
            "");
  EXPECT_LT(rms_distance(whole, split), prompt.peer.logits) << "more than BF16 arithmetic costs";
}

TEST(ArmFacts, SayWhatRanAndHowManyBytesItTook) {
  const std::vector<int32_t> tokens = some_tokens(104, 100);
  struct Case {
    const char* arm;
    int64_t bytes_per_token;  // both sides, 2 heads of 64, 6 layers
    std::set<std::string> formats;
  };
  const std::vector<Case> cases = {
      {"bf16", 6 * 2 * 2 * 128, {"bf16,bf16"}},
      {"fp8_scale1", 6 * 2 * 2 * 64, {"e4m3_per_tensor,e4m3_per_tensor"}},
      {"fp8_head", 6 * 2 * 2 * 64, {"e4m3_per_head,e4m3_per_head"}},
      {"fp8_token_head", 6 * 2 * 2 * 68, {"e4m3_per_token_head,e4m3_per_token_head"}},
      {"fp8_head/bf16=0,3k",
       (2 * 2 * 128) + 2 * (128 + 64) + 4 * 2 * 2 * 64,
       {"bf16,bf16", "bf16,e4m3_per_head", "e4m3_per_head,e4m3_per_head"}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.arm);
    Engine engine(tiny_model());
    Sequence sequence = engine.start(add_arm(engine, c.arm, 130));
    run(engine, sequence, tokens);
    const ArmFacts facts = engine.facts(0);
    EXPECT_EQ(facts.arm, c.arm);
    EXPECT_EQ(facts.allocated_bytes, 192 * c.bytes_per_token) << "130 tokens are 3 blocks of 64";
    EXPECT_EQ(facts.planned_bytes, facts.allocated_bytes);
    for (const auto* kernels : {&facts.kernels.store_kv, &facts.kernels.attend}) {
      EXPECT_EQ(kernels->size(), c.formats.size());
      for (const std::string& format : c.formats) {
        EXPECT_TRUE(std::ranges::any_of(*kernels, [&](const std::string& name) {
          return name.find('/' + format) != std::string::npos;
        })) << format;
      }
    }
    EXPECT_EQ(facts.kernels.matmul.size(), 1u);
    ASSERT_EQ(facts.counts.size(), 6u);
    for (const StoreCounts& layer : facts.counts) {
      EXPECT_EQ(layer.values, 100 * 2 * 2 * 64);
      EXPECT_EQ(layer.nan, 0);
    }
  }
}

}  // namespace
}  // namespace kv::engine_test
