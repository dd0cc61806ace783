// What an engine is asked for: which rows come back in which order, what is refused, and that a
// broken model is noticed.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <set>

#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"
#include "tests/engine/harness.h"

namespace kv::engine_test {
namespace {

template <class E, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Requests, GetTheRowsTheyAskForInLockstep) {
  const std::vector<int32_t> tokens = some_tokens(200, 90);
  const Logits all = run_alone("bf16", tokens);
  const auto vocab = static_cast<size_t>(tiny_model()->spec().vocab_size);
  struct Case {
    int64_t length, from;
  };
  const std::vector<Case> cases = {{90, 80}, {40, 0}, {90, -1}, {85, 84}, {30, 30}};
  Engine engine(tiny_model(), {.rows_per_pass = 100});
  const int arm = add_arm(engine, "bf16", 5 * 128);
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < cases.size(); ++i) sequences.push_back(engine.start(arm));
  std::vector<Request> requests;
  for (size_t i = 0; i < cases.size(); ++i) {
    requests.push_back({&sequences[i],
                        std::span(tokens).first(static_cast<size_t>(cases[i].length)),
                        cases[i].from, nullptr});
  }
  std::vector<std::pair<int64_t, size_t>> expected, seen;  // (token, request)
  for (int64_t t = 0; t < 90; ++t) {
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].from >= 0 && t >= cases[i].from && t < cases[i].length)
        expected.push_back({t, i});
    }
  }
  std::set<int64_t> finished;
  engine.run(requests, [&](std::span<const LogitRow> rows) {
    std::set<int64_t> in_call;
    for (const LogitRow& row : rows) {
      seen.push_back({row.token, row.request});
      in_call.insert(row.token);
      const auto reference = std::span(all).subspan(static_cast<size_t>(row.token) * vocab, vocab);
      EXPECT_EQ(difference(reference, row.logits), "") << row.request << ' ' << row.token;
    }
    for (const int64_t token : in_call)
      EXPECT_TRUE(finished.insert(token).second) << "token " << token << " came in two calls";
  });
  EXPECT_EQ(seen, expected);
}

TEST(Requests, BeyondTheContextAreRefusedBeforeAnyWork) {
  Engine engine(tiny_model());
  Sequence sequence = engine.start(add_arm(engine, "bf16", 64));
  const std::vector<int32_t> tokens = some_tokens(201, 8193);
  const auto feed = [&] { run(engine, sequence, tokens); };
  EXPECT_EQ(message_of<ValueError>(feed),
            "sequence: 8193 tokens leave the model's context of 8192");
  EXPECT_EQ(sequence.length(), 0);
}

TEST(Requests, UpToTheContextsEndAreServed) {
  const fixtures::ScratchFolder folder;
  ModelSpec spec = fixtures::tiny_spec();
  spec.head_dim = 64;
  fixtures::write_hf_model(folder.path(), fixtures::make_tiny_model(spec, 3));
  const auto model = Model::load(Checkpoint::open(folder.path()));
  Engine engine(model);
  engine.add_arm(ArmSpec{}, std::nullopt, spec.max_positions);
  Sequence sequence = engine.start(0);
  std::vector<int32_t> tokens(static_cast<size_t>(spec.max_positions), 5);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 40);
  const Logits logits = run(engine, sequence, tokens);
  EXPECT_GE(argmax(std::span(logits).last(40)), 0);
  const int32_t one_more = 3;
  EXPECT_EQ(message_of<ValueError>([&] {
              run(engine, sequence, {&one_more, 1});
            }),
            "sequence: 129 tokens leave the model's context of 128");
}

TEST(Requests, ForMoreTokensThanTheArmHoldsAreRefusedBeforeAnyWork) {
  Engine engine(tiny_model(), {.rows_per_pass = 64});
  const int arm = add_arm(engine, "bf16", 128);
  Sequence first = engine.start(arm), second = engine.start(arm);
  const std::vector<int32_t> tokens = some_tokens(202, 129);
  EXPECT_NE(message_of<ValueError>([&] { run(engine, first, tokens); }).find("3 blocks"),
            std::string::npos);
  EXPECT_EQ(first.length(), 0);
  EXPECT_EQ(engine.free_tokens(arm), 128);
  // Two sequences that each would fit, and do not fit together.
  const auto part = std::span(tokens).first(100);
  EXPECT_NE(message_of<ValueError>([&] {
              run(engine, {{&first, part}, {&second, part}});
            }).find("blocks"),
            std::string::npos);
  EXPECT_EQ(first.length(), 0);
  EXPECT_EQ(second.length(), 0);
  EXPECT_EQ(difference(run(engine, first, part), run_alone("bf16", part)), "");
}

TEST(Requests, WithTokensOutsideTheVocabularyLeaveTheSequenceAsItWas) {
  Engine engine(tiny_model());
  Sequence sequence = engine.start(add_arm(engine, "bf16", 128));
  std::vector<int32_t> tokens = some_tokens(203, 20);
  tokens[11] = 1024;
  EXPECT_EQ(message_of<ValueError>([&] { run(engine, sequence, tokens); }),
            "token id: expected 0 to 1023, found 1024");
  EXPECT_EQ(sequence.length(), 0);
  tokens[11] = 7;
  EXPECT_EQ(difference(run(engine, sequence, tokens), run_alone("bf16", tokens)), "");
}

TEST(Requests, WithOneSequenceTwiceAreRefused) {
  Engine engine(tiny_model(), {.rows_per_pass = 16});
  Sequence sequence = engine.start(add_arm(engine, "bf16", 128));
  const std::vector<int32_t> tokens = some_tokens(204, 20);
  EXPECT_NE(message_of<ValueError>([&] {
              run(engine, {{&sequence, tokens}, {&sequence, tokens}});
            }),
            "nothing was thrown");
}

TEST(Requests, WithoutTokensDoNothing) {
  Engine engine(tiny_model());
  Sequence sequence = engine.start(add_arm(engine, "bf16", 64));
  EXPECT_TRUE(run(engine, sequence, {}).empty());
  EXPECT_EQ(sequence.length(), 0);
  engine.run({});
}

TEST(EngineSetup, RefusesArmsItCannotRun) {
  Engine engine(tiny_model());
  const auto add = [&](const char* arm, const std::optional<ScaleTable>& scales) {
    return [&engine, arm, scales] { engine.add_arm(ArmSpec::parse(arm), scales, 64); };
  };
  EXPECT_EQ(message_of<ValueError>(add("fp8_tensor", std::nullopt)),
            "arm fp8_tensor: needs calibrated scales, found none");
  EXPECT_EQ(
      message_of<ValueError>(add("fp8_head/bf16=1", ScaleTable(6, 4, "x.json"))),
      "arm fp8_head/bf16=1: scales (x.json): expected 6 layers and 2 KV heads, found 6 and 4");
  EXPECT_EQ(message_of<ValueError>(add("fp8_scale1/bf16=6", std::nullopt)),
            "arm fp8_scale1/bf16=6: bf16: expected layers 0 to 5, found 6");
  EXPECT_EQ(message_of<UnsupportedError>(add("fp8_token_head/math=fp8", std::nullopt)),
            "arm fp8_token_head/math=fp8: needed math=fp8 over inline scales, this device supports "
            "math=bf16 there");
  EXPECT_EQ(engine.num_arms(), 0);
}

TEST(EngineSetup, RefusesPlansWithoutRowsOrBlocks) {
  for (const BatchPlan plan : {BatchPlan{0, 512, 0}, BatchPlan{64, 0, 0}, BatchPlan{64, 512, -1}}) {
    EXPECT_NE(message_of<ValueError>([&] {
                Engine(tiny_model(), plan);
              }).find("batch plan: expected block_size and rows_per_pass > 0"),
              std::string::npos);
  }
}

/// models/tiny with one tensor's first value replaced.
std::shared_ptr<const Model> poisoned(const fixtures::ScratchFolder& folder,
                                      const std::string& tensor) {
  const std::filesystem::path tiny = KV_SOURCE_DIR "/models/tiny";
  fixtures::write_file(folder / "config.json", fixtures::read_file(tiny / "config.json"));
  std::string bytes = fixtures::read_file(tiny / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const size_t entry = bytes.find('"' + tensor + '"');
  const size_t offsets = bytes.find("data_offsets\":[", entry) + 15;
  const size_t begin = 8 + header + std::stoull(bytes.substr(offsets, 20));
  const uint16_t nan = 0x7fc0;
  std::memcpy(bytes.data() + begin, &nan, sizeof(nan));
  fixtures::write_file(folder / "model.safetensors", bytes);
  return Model::load(Checkpoint::open(folder.path()));
}

TEST(PoisonedModel, IsNoticedUnderEveryLayout) {
  const std::vector<int32_t> tokens = some_tokens(205, 20);
  for (const char* tensor :
       {"model.layers.2.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
        "model.layers.5.mlp.down_proj.weight", "model.norm.weight"}) {
    const fixtures::ScratchFolder folder;
    const auto model = poisoned(folder, tensor);
    for (const char* arm : {"bf16", "fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head"}) {
      SCOPED_TRACE(std::string(tensor) + " under " + arm);
      Engine engine(model);
      const ArmSpec spec = ArmSpec::parse(arm);
      engine.add_arm(spec, scales_for(spec), 64);
      Sequence sequence = engine.start(0);
      const Logits logits = run(engine, sequence, tokens);
      const auto vocab = static_cast<size_t>(model->spec().vocab_size);
      for (size_t t = 0; t < tokens.size(); ++t)
        EXPECT_EQ(argmax(std::span(logits).subspan(t * vocab, vocab)), -1) << "token " << t;
    }
  }
}

TEST(PoisonedModel, EndsAGenerationAndSaysWhy) {
  const fixtures::ScratchFolder folder;
  Engine engine(poisoned(folder, "model.layers.1.self_attn.q_proj.weight"));
  engine.add_arm(ArmSpec{}, std::nullopt, 64);
  Sequence sequence = engine.start(0);
  Sequence* pointer = &sequence;
  const int32_t first = 9;
  const Generation generation = engine.generate({&pointer, 1}, {&first, 1}, 8, {}).front();
  EXPECT_EQ(generation.end, Generation::End::kNonFinite);
  EXPECT_TRUE(generation.tokens.empty());
}

TEST(Argmax, TakesTheFirstOfTheLargestAndNoNumberThatIsNone) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-5}), 0);
  EXPECT_EQ(argmax(std::vector<float>{0.0f, -0.0f}), 0);
  EXPECT_EQ(argmax(std::vector<float>{-0.0f, 0.0f}), 0);
  EXPECT_EQ(argmax(std::vector<float>{}), -1);
  for (const float bad : {kInf, -kInf, kNan}) {
    EXPECT_EQ(argmax(std::vector<float>{bad, 1, 2}), -1);
    EXPECT_EQ(argmax(std::vector<float>{1, 2, bad}), -1);
  }
}

}  // namespace
}  // namespace kv::engine_test
