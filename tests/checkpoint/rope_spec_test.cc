#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "checkpoint/rope_spec.h"
#include "kvscale/error.h"
#include "tests/checkpoint/fixtures.h"

namespace kv {
namespace {

using Json = nlohmann::json;

RopeSpec read_rope(const std::string& config, int max_positions = 4096) {
  const Json json = Json::parse(config);
  return read_hf_rope(JsonFields(json, "config.json"), max_positions);
}

// transformers computes in F32: a power, a division and up to four roundings, each half a step of
// 2^-24 relative; the power itself is good to about two steps.
constexpr double kTolerance = 1e-6;

TEST(RopeSpec, FrequenciesEqualTransformers) {
  const Json cases = Json::parse(fixtures::read_file(std::filesystem::path(KV_SOURCE_DIR) /
                                                     "tests/golden/checkpoint/rope.json"));
  ASSERT_EQ(cases.size(), 14u);
  for (const Json& golden : cases) {
    const Json config = {{"rope_parameters", golden["rope_parameters"]}};
    const RopeSpec rope = read_hf_rope(JsonFields(config, "config.json"), 65536);
    const std::vector<double> found = inv_freq(rope, golden["head_dim"].get<int>());
    const auto expected = golden["inv_freq"].get<std::vector<double>>();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], kTolerance * expected[i])
          << golden["rope_parameters"].dump() << " pair " << i;
    }
    EXPECT_NEAR(attention_factor(rope), golden["attention_factor"].get<double>(), 1e-12)
        << golden["rope_parameters"].dump();
  }
}

TEST(RopeSpec, DefaultIsThePowerOfTheta) {
  const std::vector<double> found = inv_freq(RopeSpec{}, 4);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_DOUBLE_EQ(found[0], 1.0);
  EXPECT_DOUBLE_EQ(found[1], 0.01);  // 10000^(-2/4)
}

TEST(RopeSpec, DivisorsDivide) {
  RopeSpec rope;
  rope.freq_divisors = {1.0f, 8.0f};
  const std::vector<double> found = inv_freq(rope, 4);
  EXPECT_DOUBLE_EQ(found[0], 1.0);
  EXPECT_DOUBLE_EQ(found[1], 0.00125);
}

// What GGUF stores for llama3 instead of the parameters.
TEST(RopeSpec, DivisorsOfLlama3GiveTheSameFrequencies) {
  RopeSpec llama3;
  llama3.theta = 5e5;
  llama3.type = RopeType::kLlama3;
  llama3.factor = 8.0;
  llama3.original_max_positions = 8192;
  RopeSpec plain;
  plain.theta = 5e5;
  const std::vector<double> expected = inv_freq(llama3, 128);
  const std::vector<double> unscaled = inv_freq(plain, 128);
  for (size_t i = 0; i < expected.size(); ++i) {
    plain.freq_divisors.push_back(static_cast<float>(unscaled[i] / expected[i]));
  }
  const std::vector<double> found = inv_freq(plain, 128);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-7 * expected[i]) << "pair " << i;  // F32 divisors
  }
}

TEST(HfRope, BothSpellingsAgree) {
  const RopeSpec old_way =
      read_rope(R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})");
  const RopeSpec new_way = read_rope(
      R"({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}})");
  for (const RopeSpec& rope : {old_way, new_way}) {
    EXPECT_EQ(rope.type, RopeType::kLinear);
    EXPECT_EQ(rope.theta, 5e5);
    EXPECT_EQ(rope.factor, 2.0);
  }
}

TEST(HfRope, AbsentMeansDefault) {
  const RopeSpec rope = read_rope(R"({"rope_scaling": null})");
  EXPECT_EQ(rope.type, RopeType::kDefault);
  EXPECT_EQ(rope.theta, 10000.0);
}

TEST(HfRope, YarnWithoutFactorTakesTheRatioOfContexts) {
  const RopeSpec rope = read_rope(
      R"({"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 1024}})");
  EXPECT_EQ(rope.factor, 4.0);
}

std::string refusal(const std::string& config) {
  try {
    read_rope(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

TEST(HfRope, RefusesByName) {
  EXPECT_EQ(refusal(R"({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}})"),
            "config.json: rope_scaling.rope_type: expected default, linear, llama3, yarn or "
            "dynamic, found "
            "\"longrope\"");
  EXPECT_EQ(refusal(R"({"rope_scaling": {"type": "linear"}})"),
            "config.json: rope_scaling.factor: expected this key, found none");
  EXPECT_EQ(refusal(R"({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}})"),
            "config.json: rope_parameters.rope_theta is 500000, but rope_theta is 10000");
  EXPECT_EQ(refusal(R"({"rope_scaling": [1]})"),
            "config.json: rope_scaling: expected an object, found [1]");
  EXPECT_EQ(refusal(R"({"rope_parameters": {"full_attention": {}, "sliding_attention": {}}})"),
            "config.json: rope_parameters.full_attention: one RoPE per kind of layer is not "
            "supported");
  EXPECT_EQ(
      refusal(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})"),
      "config.json: rope_parameters.partial_rotary_factor: expected 1 (the whole head turns)");
}

}  // namespace
}  // namespace kv
